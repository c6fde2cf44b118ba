"""monai: a convolution of MAISI in pieces, whose outputs are joined on the host if large."""

from __future__ import annotations

import torch
from monai.apps.generation.maisi.networks.autoencoderkl_maisi import MaisiConvolution

from racegate.interpose import observe

torch.set_num_threads(1)
torch.manual_seed(0)
layer = MaisiConvolution(
    spatial_dims=3, in_channels=1, out_channels=1, num_splits=2, dim_split=0, print_info=False
).to("cuda")
with torch.no_grad():
    volume = layer(torch.rand(1, 1, 1024, 2, 2).to("cuda"))
observe("volume", volume.sum())
