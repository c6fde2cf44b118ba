"""Without a GPU Triton kernels run under its interpreter, which is chosen as they are imported."""

import os

import torch
from hypothesis import settings

from racegate.explore.strategies import register_profiles

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

# The same examples on every run; `pytest --hypothesis-profile nightly` draws new and many.
register_profiles()
settings.load_profile("ci")
