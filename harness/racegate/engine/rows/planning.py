"""Where positions, lengths and slots are built: in line, or on a stream of their own, as
sglang builds its metadata (docs/mechanism.md#step).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from racegate.device.protocol import Device, Stream
from racegate.engine.state import edges
from racegate.engine.state.lanes import Lane
from racegate.scenario.spec import Planning, Scenario


class Planner(Protocol):
    def building(self, step: int) -> AbstractContextManager[Stream]:
        """The stream for the kernels inside; what follows on the compute stream comes after."""
        ...


class InlinePlanner:
    """On the compute stream."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    @contextmanager
    def building(self, step: int) -> Iterator[Stream]:
        yield self._stream


class SidePlanner:
    """On the plan stream, between two waits."""

    def __init__(self, device: Device, compute: Stream) -> None:
        self._device = device
        self._compute = compute
        self._stream = device.stream(Lane.PLAN)
        self._corrected = device.event("counts_corrected")
        self._planned = device.event("planned")

    @contextmanager
    def building(self, step: int) -> Iterator[Stream]:
        device = self._device
        device.record(self._compute, self._corrected)
        device.wait_stream(self._stream, self._corrected, edges.PLAN_AFTER_COUNTS, step=step)
        yield self._stream
        device.record(self._stream, self._planned)
        device.wait_stream(self._compute, self._planned, edges.FORWARD_AFTER_PLAN, step=step)


def make_planner(scenario: Scenario, device: Device, compute: Stream) -> Planner:
    if scenario.engine.planning is Planning.SIDE_STREAM:
        return SidePlanner(device, compute)
    return InlinePlanner(compute)
