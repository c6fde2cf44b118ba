"""Without a GPU Triton kernels run under its interpreter, which is chosen as they are imported."""

import gc
import os

import pytest
import torch
from hypothesis import settings

from racegate.explore.strategies import register_profiles

# Read when CUDA starts: streams of one hardware queue would be ordered by accident.
os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

# A command of a test does not begin with what another one left.
os.environ.setdefault("RACEGATE_NO_STORE", "1")
# The same examples on every run; `pytest --hypothesis-profile nightly` draws new and many.
register_profiles()
settings.load_profile("ci")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first, or one process would be left with it when the others are done."""
    items.sort(key=lambda item: item.get_closest_marker("vllm") is None)


def pytest_collection_finish() -> None:
    """What was imported and collected stays: the collector walks through it no more."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 100)
