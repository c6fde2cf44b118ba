"""Wrong variants of engine parts, each the historical defect and nothing else."""

from __future__ import annotations

import numpy as np

from racegate.device.protocol import Device, DeviceBuffer, HostBuffer, Stream
from racegate.engine.accepted_counts import (
    AcceptedCounts,
    CountAnswer,
    CountQuery,
    DeviceCounts,
    SnapshotCounts,
)
from racegate.engine.buffers import Inputs, Work
from racegate.engine.edges import ACCEPTED_LANDED
from racegate.engine.input_batch import PrevStep
from racegate.engine.parts import CountPath
from racegate.scenario import CacheMode
from racegate_kernels.backend import Backend
from racegate_kernels.numerics import Array


class LiveRowCounts:
    """Counts land in the batch's own rows, which move while the copy is in flight (vllm before
    #38556).

    The wait stands right before the read, but behind the row moves. Rows that had drafts get their
    count from the device, except in align mode, where the host's value is uploaded last.
    """

    def __init__(
        self, device: Device, stream: Stream, *, rows_max: int, cache_mode: CacheMode
    ) -> None:
        self._device = device
        self._stream = stream
        self._event = device.event("accepted_counts")
        self._counts = device.host_buffer("accepted_counts_cpu", (rows_max,), np.int32)
        self._is_align = cache_mode is CacheMode.ALIGN

    @property
    def row_tables(self) -> tuple[HostBuffer, ...]:
        return (self._counts,)

    def add_row(self, row: int) -> None:
        self._counts.write_row(row, 1)

    def settle(self, step: int, prev: PrevStep) -> np.ndarray | None:
        return None

    def answer(self, query: CountQuery) -> CountAnswer:
        self._device.wait_host(self._event, ACCEPTED_LANDED, step=query.step)
        host = query.known.copy()
        for row, previous in enumerate(query.prev_positions.tolist()):
            if previous >= 0:
                assert query.prev is not None
                owner = (query.rows[row], query.prev.step)
                host[row] = self._counts.read_row(self._row_read(row, previous), expect=owner)
        self._counts.write(host)
        return CountAnswer(host=host, source=self._source(query))

    def _row_read(self, row: int, previous: int) -> int:
        return row

    def _source(self, query: CountQuery) -> np.ndarray:
        if self._is_align or query.prev is None:
            return np.full_like(query.prev_positions, -1)
        return drafted_rows(query)

    def land(self, step: int, counts: DeviceBuffer, *, rows: int) -> None:
        self._device.download(
            self._stream, self._counts, counts, "accepted_counts", step=step, rows=rows
        )
        self._device.record(self._stream, self._event)


class RemappedRowCounts(LiveRowCounts):
    """As LiveRowCounts, but read through previous positions: right only if the copy lands behind
    the moves (vllm#51571).
    """

    def _row_read(self, row: int, previous: int) -> int:
        return previous


class DraftedDeviceCounts(DeviceCounts):
    """The device's count only for rows that had drafts (vllm before #45100)."""

    def answer(self, query: CountQuery) -> CountAnswer:
        return CountAnswer(host=query.known, source=drafted_rows(query))


def drafted_rows(query: CountQuery) -> np.ndarray:
    """[R] int32: the previous row of rows that had drafts then, -1 for the others."""
    if query.prev is None:
        return np.full_like(query.prev_positions, -1)
    drafts = query.prev.draft_lens[np.maximum(query.prev_positions, 0)]
    is_drafted = (query.prev_positions >= 0) & (drafts > 0)
    return np.where(is_drafted, query.prev_positions, -1).astype(np.int32)


def live_row_path(cache_mode: CacheMode) -> CountPath:
    def make(device: Device, stream: Stream, *, rows_max: int) -> AcceptedCounts:
        return LiveRowCounts(device, stream, rows_max=rows_max, cache_mode=cache_mode)

    return make


def remapped_row_path(cache_mode: CacheMode) -> CountPath:
    def make(device: Device, stream: Stream, *, rows_max: int) -> AcceptedCounts:
        return RemappedRowCounts(device, stream, rows_max=rows_max, cache_mode=cache_mode)

    return make


def snapshot_path(cache_mode: CacheMode) -> CountPath:
    """The host's counts decide in every cache mode, as they did when metadata was built on the
    host.
    """
    return SnapshotCounts


def drafted_path(cache_mode: CacheMode) -> CountPath:
    return SnapshotCounts if cache_mode is CacheMode.ALIGN else DraftedDeviceCounts


def keep_old_accepted(
    k: Backend,
    accepted: Array,  # [R_max] int32, read and written
    accepted_host: Array,  # [R] int32
    count_source: Array,  # [R] int32
    valid_count: Array,  # [R_max] int32
) -> None:
    """Rows without a source keep what their row's last tenant left there, instead of taking 1."""
    k.select_accepted(accepted, accepted[: count_source.shape[0]], count_source, valid_count)


def count_first_hole(k: Backend, sampled: Array, accepted: Array) -> None:
    """The index of the first -1, equal to the count on every legal row (control)."""
    k.accepted_count_first_hole(sampled, accepted)


def uncorrected_lengths(inputs: Inputs, work: Work) -> DeviceBuffer:
    """Positions, lengths and slots from the host's optimistic counts."""
    return inputs.computed_host.gpu


def current_rows(prev_positions: np.ndarray) -> np.ndarray:
    """Gathers the previous step's values by this step's rows."""
    rows = np.arange(len(prev_positions), dtype=np.int32)
    return np.where(prev_positions >= 0, rows, -1).astype(np.int32)


def row_zero(prev_positions: np.ndarray) -> np.ndarray:
    """Takes 'no previous row' for row 0, in a step that has previous rows at all."""
    return np.maximum(prev_positions, 0) if (prev_positions >= 0).any() else prev_positions


def inflated_by_drafts(computed: int, tokens: int, *, drafts_in_batch: int) -> int:
    """Looks behind the drafts that the padded batch length counts."""
    return computed + tokens + drafts_in_batch
