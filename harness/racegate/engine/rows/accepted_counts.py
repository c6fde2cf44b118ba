"""The path of accepted counts from the device to where the next step selects recurrent states.

An engine part. Two correct ones: without prefix caching the device keeps the counts to itself
(vllm#45100); in align mode the host needs them, and they land in a private buffer per step, in that
step's row order, which nothing moves: the only place where neither an early nor a late landing can
hurt (docs/mechanism.md#landings).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from racegate.device.protocol import DeviceBuffer, HostBuffer
from racegate.engine.state.edges import ACCEPTED_LANDED
from racegate.engine.state.setup import Setup
from racegate.engine.state.view import PrevStep


@dataclass(frozen=True, slots=True, kw_only=True)
class CountQuery:
    """What the host asks when it prepares a step.

    rows: requests by row; prev_positions: [R] int32, row in the previous step or -1
    accepted_last: [R] int32, the count of each row's last step as far as the host knows it (1
        where it sampled nothing yet)
    """

    step: int
    rows: tuple[str, ...]
    prev: PrevStep
    prev_positions: np.ndarray
    accepted_last: np.ndarray


@dataclass(frozen=True, slots=True, kw_only=True)
class CountAnswer:
    """accepted_host: [R] int32, counts to upload; count_source: [R] int32, previous row whose
    valid count replaces it on the device, or -1.
    """

    accepted_host: np.ndarray
    count_source: np.ndarray


class AcceptedCounts:
    """One path of accepted counts. On this one they never leave the device: 1 from the host,
    replaced on the device where there is a previous row.

    row_tables: pinned tables that must move with the rows
    """

    row_tables: tuple[HostBuffer, ...] = ()

    def __init__(self, setup: Setup) -> None:
        """They need no memory."""

    def add_row(self, row: int) -> None:
        """A request enters the batch in this row."""

    def begin_step(self, step: int) -> None:
        """The host is about to move rows."""

    def wait_for_accepted(self, step: int, prev: PrevStep) -> np.ndarray | None:
        """[R] int32: the previous step's counts in its row order, if the host gets to know them."""
        return None

    def answer(self, query: CountQuery) -> CountAnswer:
        """The counts that the step starts from; may wait."""
        return CountAnswer(accepted_host=query.accepted_last, count_source=query.prev_positions)

    def land(self, step: int, accepted: DeviceBuffer, *, rows: int) -> None:
        """The step's counts [R] are complete on the compute stream: send them where they are
        read.
        """


class DeviceCounts(AcceptedCounts):
    """Every previous row gives its valid count."""


class PrivateCounts(AcceptedCounts):
    """Counts land in a private buffer per step, in the step's own row order."""

    def __init__(self, setup: Setup) -> None:
        self._device = setup.device
        self._stream = setup.compute
        self._rows_max = setup.sizes.rows
        self._event = setup.device.event("accepted_counts")
        self._landing_cpu: HostBuffer | None = None
        self._prev_accepted = np.zeros(0, np.int32)

    def wait_for_accepted(self, step: int, prev: PrevStep) -> np.ndarray | None:
        """[R] int32; waits for the copy, once."""
        if self._landing_cpu is None:
            return self._prev_accepted
        self._device.wait_host(self._event, ACCEPTED_LANDED, step=step)
        self._prev_accepted = self._landing_cpu.read(len(prev.requests), expect=prev.owners)
        self._device.free_host(self._landing_cpu)
        self._landing_cpu = None
        return self._prev_accepted

    def answer(self, query: CountQuery) -> CountAnswer:
        """Every previous row gives the count that landed for it."""
        if not query.prev.is_none:
            self.wait_for_accepted(query.step, query.prev)
        has_prev = query.prev_positions >= 0
        accepted_host = query.accepted_last.copy()
        accepted_host[has_prev] = self._prev_accepted[query.prev_positions[has_prev]]
        count_source = np.full_like(accepted_host, -1)
        return CountAnswer(accepted_host=accepted_host, count_source=count_source)

    def land(self, step: int, accepted: DeviceBuffer, *, rows: int) -> None:
        """Into fresh pinned memory. accepted: [R] int32"""
        shape = (self._rows_max,)
        self._landing_cpu = self._device.host_buffer("accepted_counts_cpu", shape, np.int32)
        self._device.download(
            self._stream, self._landing_cpu, accepted, "accepted_counts", step=step, rows=rows
        )
        self._device.record(self._stream, self._event)
