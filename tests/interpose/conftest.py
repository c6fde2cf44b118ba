"""One device for all programs that tests run themselves: its start imports torch."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from racegate.targets.program.launch import DeviceServer, open_device


@pytest.fixture(scope="session")
def device() -> Iterator[DeviceServer]:
    """A virtual device; each run on it is a process of its own."""
    with open_device() as opened:
        yield opened
