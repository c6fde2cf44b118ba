"""diffusers: group offloading of a small transformer, its groups prefetched on a stream.

Arguments: `leaf` or `block`, then `record` (record_stream=True) or `sync`, then `memory` or `disk`.
"""

from __future__ import annotations

import os
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from diffusers import PixArtTransformer2DModel
from diffusers.hooks import apply_group_offloading

from racegate.interpose import observe

torch.set_num_threads(1)
torch.manual_seed(0)
level, order, place = sys.argv[1:4]
# Each of its modules runs once in a forward pass. In 0.35.2 the group behind one that runs twice,
# as in DiTTransformer2DModel, is not loaded, and torch refuses its weights.
model = PixArtTransformer2DModel(
    sample_size=8,
    num_layers=3,
    patch_size=2,
    attention_head_dim=8,
    num_attention_heads=2,
    in_channels=4,
    out_channels=4,
    cross_attention_dim=16,
    caption_channels=16,
    use_additional_conditions=False,
).eval()
with tempfile.TemporaryDirectory() as folder, torch.no_grad():
    apply_group_offloading(
        model,
        onload_device=torch.device("cuda"),
        offload_device=torch.device("cpu"),
        offload_type="leaf_level" if level == "leaf" else "block_level",
        num_blocks_per_group=1,
        use_stream=True,
        record_stream=order == "record",
        **({"offload_to_disk_path": folder} if place == "disk" else {}),  # not in 0.33
    )
    latents = torch.randn(1, 4, 8, 8, device="cuda")
    caption = torch.randn(1, 4, 16, device="cuda")
    for step in (3, 2, 1):
        time = torch.tensor([step], device="cuda")
        predicted = model(latents, encoder_hidden_states=caption, timestep=time).sample
        latents = latents - 0.1 * predicted
    observe("latents", latents)
