"""Where positions, lengths and slots are built: in line, or on a stream of their own, as
sglang builds its metadata (docs/mechanism.md#step).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from racegate.engine.state import edges
from racegate.engine.state.kernels import KernelStream
from racegate.engine.state.lanes import Lane
from racegate.engine.state.setup import Setup
from racegate.scenario.settings import Planning


class Planner(Protocol):
    """Who says on which stream the step's metadata is built."""

    def building(self, step: int) -> AbstractContextManager[KernelStream]:
        """The stream for the kernels inside; what follows on the compute stream comes after."""
        ...


class InlinePlanner:
    """On the compute stream."""

    def __init__(self, setup: Setup) -> None:
        self._kernels = setup.kernels

    @contextmanager
    def building(self, step: int) -> Iterator[KernelStream]:
        """The compute stream."""
        yield self._kernels


class SidePlanner:
    """On the plan stream, between two waits."""

    def __init__(self, setup: Setup) -> None:
        device = setup.device
        self._device = device
        self._compute = setup.compute
        self._stream = device.stream(Lane.PLAN)
        self._kernels = KernelStream(device, self._stream)
        self._corrected = device.event("counts_corrected")
        self._planned = device.event("planned")

    @contextmanager
    def building(self, step: int) -> Iterator[KernelStream]:
        """The plan stream, behind what is issued; the compute stream waits for it."""
        device = self._device
        device.record(self._compute, self._corrected)
        device.wait_stream(self._stream, self._corrected, edges.PLAN_AFTER_COUNTS, step=step)
        yield self._kernels
        device.record(self._stream, self._planned)
        device.wait_stream(self._compute, self._planned, edges.FORWARD_AFTER_PLAN, step=step)


def make_planner(setup: Setup) -> Planner:
    """The one that the scenario asks for."""
    if setup.scenario.engine.planning is Planning.SIDE_STREAM:
        return SidePlanner(setup)
    return InlinePlanner(setup)
