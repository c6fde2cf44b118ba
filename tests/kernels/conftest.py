"""Where there is a GPU the launchers run on it, and these are tests of it too."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from judged_launches import watched_interpreter


# First: xdist looks for groups in a hook of its own.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not torch.cuda.is_available():
        return
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.gpu)
            item.add_marker(pytest.mark.xdist_group("gpu0"))


@pytest.fixture(autouse=True)
def own_launches_are_clean() -> Iterator[None]:
    """Every launch of these tests is judged from inside: its programs, its lanes, its bounds, and
    that it may begin early.
    """
    if torch.cuda.is_available() or not os.environ.get("TRITON_INTERPRET"):
        yield
        return
    with watched_interpreter().judged() as report:
        yield
    assert report.found == []
