"""Where there is a GPU the launchers run on it, and these are tests of it too."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch


# First: xdist looks for groups in a hook of its own.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not torch.cuda.is_available():
        return
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.gpu)
            item.add_marker(pytest.mark.xdist_group("gpu0"))
