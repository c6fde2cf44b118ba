"""The path of accepted counts from the device to where the next step selects recurrent states.

An engine part. Two correct ones: without prefix caching the device keeps the counts to itself
(vllm#45100); in align mode the host needs them, and they land in a private buffer per step, in that
step's row order, which nothing moves: the only place where neither an early nor a late landing can
hurt (docs/mechanism.md#landings).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from racegate.device.protocol import Device, DeviceBuffer, HostBuffer, Stream
from racegate.engine.state.edges import ACCEPTED_LANDED
from racegate.engine.state.view import PrevStep
from racegate.history.trace import Owner


@dataclass(frozen=True, slots=True, kw_only=True)
class CountQuery:
    """What the host asks when it prepares a step.

    rows: requests by row; prev_positions: [R] int32, row in the previous step or -1
    known: [R] int32, the count of each row's last step as far as the host knows it (1 where it
        sampled nothing yet)
    """

    step: int
    rows: tuple[str, ...]
    prev: PrevStep | None
    prev_positions: np.ndarray
    known: np.ndarray


@dataclass(frozen=True, slots=True, kw_only=True)
class CountAnswer:
    """host: [R] int32, counts to upload; source: [R] int32, previous row whose device count
    replaces it, or -1.
    """

    host: np.ndarray
    source: np.ndarray


class AcceptedCounts(Protocol):
    @property
    def row_tables(self) -> tuple[HostBuffer, ...]:
        """Pinned tables that must move with the rows."""
        ...

    def add_row(self, row: int) -> None:
        """A request enters the batch in this row."""
        ...

    def begin_step(self, step: int) -> None:
        """The host is about to move rows."""
        ...

    def settle(self, step: int, prev: PrevStep) -> np.ndarray | None:
        """The previous step's counts in its row order, if the host gets to know them; may wait."""
        ...

    def answer(self, query: CountQuery) -> CountAnswer: ...

    def land(self, step: int, counts: DeviceBuffer, *, rows: int) -> None:
        """The step's counts are complete on the compute stream: send them where they are read."""
        ...


class DeviceCounts:
    """Counts never leave the device: 1 from the host, replaced on the device where there is a
    previous row.
    """

    def __init__(self, device: Device, stream: Stream, *, rows_max: int) -> None:
        pass

    @property
    def row_tables(self) -> tuple[HostBuffer, ...]:
        return ()

    def add_row(self, row: int) -> None:
        pass

    def begin_step(self, step: int) -> None:
        pass

    def settle(self, step: int, prev: PrevStep) -> np.ndarray | None:
        return None

    def answer(self, query: CountQuery) -> CountAnswer:
        return CountAnswer(host=query.known, source=query.prev_positions)

    def land(self, step: int, counts: DeviceBuffer, *, rows: int) -> None:
        pass


class SnapshotCounts:
    """Counts land in a private buffer per step, in the step's own row order."""

    def __init__(self, device: Device, stream: Stream, *, rows_max: int) -> None:
        self._device = device
        self._stream = stream
        self._rows_max = rows_max
        self._event = device.event("accepted_counts")
        self._landing: HostBuffer | None = None
        self._counts = np.zeros(0, np.int32)

    @property
    def row_tables(self) -> tuple[HostBuffer, ...]:
        return ()

    def add_row(self, row: int) -> None:
        pass

    def begin_step(self, step: int) -> None:
        pass

    def settle(self, step: int, prev: PrevStep) -> np.ndarray | None:
        if self._landing is None:
            return self._counts
        self._device.wait_host(self._event, ACCEPTED_LANDED, step=step)
        self._counts = self._landing.read(len(prev.requests), expect=owners_of(prev))
        self._device.free_host(self._landing)
        self._landing = None
        return self._counts

    def answer(self, query: CountQuery) -> CountAnswer:
        if query.prev is not None:
            self.settle(query.step, query.prev)
        has_prev = query.prev_positions >= 0
        host = query.known.copy()
        host[has_prev] = self._counts[query.prev_positions[has_prev]]
        return CountAnswer(host=host, source=np.full_like(host, -1))

    def land(self, step: int, counts: DeviceBuffer, *, rows: int) -> None:
        shape = (self._rows_max,)
        self._landing = self._device.host_buffer("accepted_counts_cpu", shape, np.int32)
        self._device.download(
            self._stream, self._landing, counts, "accepted_counts", step=step, rows=rows
        )
        self._device.record(self._stream, self._event)


def owners_of(prev: PrevStep) -> tuple[Owner, ...]:
    """Whose values a buffer of the previous step holds, by row."""
    return tuple((name, prev.step) for name in prev.requests)
