"""Tests on a GPU: skipped with the reason where there is none, one group of tests per GPU."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch

from racegate.device.cuda_torch import TorchDriver, open_cuda

# The conformance suite is the one of the other devices.
sys.path.insert(0, str(Path(__file__).parents[1] / "device"))


def why_not() -> str | None:
    """What is missing to run on a GPU."""
    if not torch.cuda.is_available():
        return f"no GPU: torch {torch.__version__} sees none"
    try:
        import_module("cuda.bindings.driver")
    except ImportError as error:
        return f"cuda-bindings is not installed ({error}): pip install '.[gpu]'"
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = why_not()
    for place, item in enumerate(items):
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.gpu)
            if reason is not None:
                item.add_marker(pytest.mark.skip(reason=reason))
            else:
                item.add_marker(pytest.mark.xdist_group(f"gpu{place % torch.cuda.device_count()}"))


@pytest.fixture(scope="session")
def opened() -> dict[int, TorchDriver]:
    """The drivers that this process has opened, by GPU."""
    return {}


@pytest.fixture
def driver(request: pytest.FixtureRequest, opened: dict[int, TorchDriver]) -> TorchDriver:
    """The GPU of the test's group."""
    marker = request.node.get_closest_marker("xdist_group")
    index = int(marker.args[0].removeprefix("gpu"))
    if index not in opened:
        opened[index] = open_cuda(index)
    torch.cuda.set_device(index)
    return opened[index]
