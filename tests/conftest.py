"""Without a GPU Triton kernels run under its interpreter, which is chosen as they are imported."""

import os

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
