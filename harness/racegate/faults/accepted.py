"""Faults in the path of accepted counts to the next step (docs/faults.md#accepted-counts)."""

from __future__ import annotations

import numpy as np

from racegate.device.protocol import DeviceBuffer
from racegate.engine.parts import EngineParts
from racegate.engine.rows.accepted_counts import (
    AcceptedCounts,
    CountAnswer,
    CountQuery,
    DeviceCounts,
    PrivateCounts,
)
from racegate.engine.rows.parts import CountPathMaker, RowParts
from racegate.engine.state import edges
from racegate.engine.state.setup import Setup
from racegate.faults.fault import Fault, FaultKind, Need, the_parts
from racegate.scenario.settings import CacheMode
from racegate_kernels.backend import Backend, Kernel
from racegate_kernels.numerics import Array

HS = (Need.HYBRID, Need.SPECULATION)
HSP = (*HS, Need.PREFIX_CACHE)


class LiveRowCounts(AcceptedCounts):
    """Counts land in the batch's own rows, which move while the copy is in flight (vllm before
    #38556).

    The wait stands right before the read, but behind the row moves. Rows that had drafts get their
    count from the device, except in align mode, where the host's value is uploaded last.
    """

    def __init__(self, setup: Setup) -> None:
        device = setup.device
        self._device = device
        self._stream = setup.compute
        self._event = device.event("accepted_counts")
        self._live_cpu = device.host_buffer("accepted_counts_cpu", (setup.sizes.rows,), np.int32)
        self._has_columns = setup.scenario.engine.cache_mode.splits_chunks
        self.row_tables = (self._live_cpu,)

    def add_row(self, row: int) -> None:
        """A newcomer starts with 1."""
        self._live_cpu.write_row(row, 1)

    def answer(self, query: CountQuery) -> CountAnswer:
        """Waits, behind the row moves, and reads row by row."""
        self._wait(query.step)
        accepted_host = query.accepted_last.copy()
        for row, previous in enumerate(query.prev_positions.tolist()):
            if previous >= 0:
                owner = (query.rows[row], query.prev.step)
                accepted_host[row] = self._live_cpu.read_row(
                    self._row_read(row, previous), expect=owner
                )
        self._live_cpu.write(accepted_host)
        return CountAnswer(accepted_host=accepted_host, count_source=self._count_source(query))

    def _wait(self, step: int) -> None:
        self._device.wait_host(self._event, edges.ACCEPTED_LANDED, step=step)

    def _row_read(self, row: int, previous: int) -> int:
        return row

    def _count_source(self, query: CountQuery) -> np.ndarray:
        if self._has_columns:
            return np.full_like(query.prev_positions, -1)
        return drafted_rows(query)

    def land(self, step: int, accepted: DeviceBuffer, *, rows: int) -> None:
        """Into the live rows. accepted: [R] int32"""
        self._device.download(
            self._stream, self._live_cpu, accepted, "accepted_counts", step=step, rows=rows
        )
        self._device.record(self._stream, self._event)


class RemappedRowCounts(LiveRowCounts):
    """As LiveRowCounts, but read through previous positions: right only if the copy lands behind
    the moves (vllm#51571).
    """

    def _row_read(self, row: int, previous: int) -> int:
        return previous


class EarlyWaitCounts(LiveRowCounts):
    """As LiveRowCounts, but awaited before the first row moves: both halves of the repair that
    keeps live rows (vllm#51599).
    """

    def begin_step(self, step: int) -> None:
        """Waits before the rows move."""
        self._wait(step)


class EarlyRemappedCounts(RemappedRowCounts):
    """Awaited early and still read through previous positions: the rows have moved by then, and a
    newcomer's first 1 stands where another request's count stood (vllm-ascend#13863).
    """

    def begin_step(self, step: int) -> None:
        self._wait(step)


class DraftedDeviceCounts(DeviceCounts):
    """The device's count only for rows that had drafts (vllm before #45100)."""

    def answer(self, query: CountQuery) -> CountAnswer:
        """Other rows take what the host knows."""
        return CountAnswer(accepted_host=query.accepted_last, count_source=drafted_rows(query))


class DiscardedDeviceCounts(DeviceCounts):
    """The device's count for discarded rows as well, whose count is 0 (vllm#48475)."""

    def answer(self, query: CountQuery) -> CountAnswer:
        """Every row of the previous step gives its valid count."""
        source = query.prev_positions.copy()
        row_of = {name: row for row, name in enumerate(query.prev.requests)}
        for row, name in enumerate(query.rows):
            previous = row_of.get(name, -1)
            if previous >= 0 and query.prev.discarded[previous]:
                source[row] = previous
        return CountAnswer(accepted_host=query.accepted_last, count_source=source)


def drafted_rows(query: CountQuery) -> np.ndarray:
    """[R] int32: the previous row of rows that had drafts then, -1 for the others."""
    if query.prev.is_none:
        return np.full_like(query.prev_positions, -1)
    drafts = query.prev.draft_lens[np.maximum(query.prev_positions, 0)]
    is_drafted = (query.prev_positions >= 0) & (drafts > 0)
    return np.where(is_drafted, query.prev_positions, -1).astype(np.int32)


def live_parts(kind: type[LiveRowCounts]) -> EngineParts:
    """An engine whose counts land in live rows."""
    return EngineParts(rows=RowParts(count_path=lambda cache_mode: kind))


def _device_only(kind: type[DeviceCounts]) -> EngineParts:
    """Where the device keeps the counts to itself; elsewhere the correct path."""

    def path(cache_mode: CacheMode) -> CountPathMaker:
        return PrivateCounts if cache_mode.splits_chunks else kind

    return EngineParts(rows=RowParts(count_path=path))


def keep_old_accepted(kernels: Backend) -> Kernel:
    """Rows without a source keep what their row's last request left there, instead of taking 1."""

    def select_accepted(
        accepted: Array,  # [R_max] int32, read and written
        accepted_host: Array,  # [R] int32
        count_source: Array,  # [R] int32
        valid_count: Array,  # [R_max] int32
    ) -> None:
        own = accepted[: count_source.shape[0]]
        kernels.select_accepted(accepted, own, count_source, valid_count)

    return select_accepted


def blank_inside(kernels: Backend) -> Kernel:
    """Where some tokens are forbidden, the second of three or more emitted ones is blanked: [t, -1,
    t].
    """

    def rejection_verify(
        logits: Array,  # [R, 1 + K, V], forbidden ones 0 in exact
        logit_index: Array,
        input_ids: Array,
        positions: Array,
        temperature: Array,
        seed: Array,
        sampled: Array,  # [R, 1 + K] int32, written
    ) -> None:
        rest = (logit_index, input_ids, positions, temperature, seed)
        kernels.rejection_verify(logits, *rest, sampled)
        if sampled.shape[1] > 2:
            is_constrained = (logits[:, 0] == 0).any(-1)
            blank = (is_constrained & (sampled[:, 2] != -1)) * 1
            sampled[:, 1] -= (sampled[:, 1] + 1) * blank

    return rejection_verify


FAULTS = (
    Fault(
        name="accepted-read-before-copy",
        number=1,
        kind=FaultKind.ORDERING,
        needs=HS,
        origin="vllm#36013",
        summary="no wait between the accepted-count copy and the host reading it",
        expect="inputs.accepted",
        note=(
            "Counts land in memory of their step alone, as they should: only the wait is missing."
        ),
        scenarios=("all-rejected-all-accepted", "three-row-cycle"),
        holds={"all-rejected-all-accepted": ("d2h:accepted_counts@1 until host:prepare_inputs@2",)},
        drops=frozenset({edges.ACCEPTED_LANDED.name}),
        parts=the_parts(rows=RowParts(count_path=lambda cache_mode: PrivateCounts)),
    ),
    Fault(
        name="accepted-copy-after-row-move",
        number=2,
        kind=FaultKind.ORDERING,
        needs=HS,
        origin="vllm#38556 fix 2",
        summary="counts land in live rows and are read by current row: fails when they land late",
        expect="inputs.accepted",
        scenarios=("finish-and-condense", "condense-and-reorder", "three-row-cycle"),
        holds={
            "finish-and-condense": ("d2h:accepted_counts@3 until host:condense@4",),
            "condense-and-reorder": ("d2h:accepted_counts@3 until host:condense@4",),
        },
        parts=lambda cache_mode: live_parts(LiveRowCounts),
    ),
    Fault(
        name="accepted-double-remap",
        number=3,
        kind=FaultKind.ORDERING,
        needs=HS,
        origin="vllm#51571, #51599, #53919",
        summary="counts land in live rows and are read by previous row: fails when they land early",
        expect="inputs.accepted",
        scenarios=(
            "prefill-to-decode-swap",
            "arrival-swaps-into-hole",
            "two-row-cycle",
            "three-row-cycle",
            "condense-and-reorder",
        ),
        parts=lambda cache_mode: live_parts(RemappedRowCounts),
    ),
    Fault(
        name="accepted-snapshot-in-live-rows",
        number=16,
        kind=FaultKind.LOGIC,
        needs=HS,
        origin="vllm-ascend#13863, #13865",
        summary="counts that have landed are read by previous row, where a newcomer's 1 now stands",
        expect="inputs.accepted",
        scenarios=("arrival-swaps-into-hole", "two-row-cycle"),
        parts=lambda cache_mode: live_parts(EarlyRemappedCounts),
    ),
    Fault(
        name="accepted-not-reset-first-spec",
        number=18,
        kind=FaultKind.LOGIC,
        needs=HS,
        origin="vllm#45100 part A",
        summary="rows without previous drafts keep the row's last count instead of 1",
        expect="inputs.accepted",
        scenarios=("add-into-hole", "prompt-k-plus-one"),
        parts=lambda cache_mode: _device_only(DraftedDeviceCounts),
        kernels={"select_accepted": keep_old_accepted},
    ),
    Fault(
        name="accepted-zero-unclamped",
        number=20,
        kind=FaultKind.LOGIC,
        needs=HS,
        origin="vllm#48475, #50021",
        summary="a discarded chunk's count of 0 selects recurrent state column -1",
        expect="inputs.accepted",
        note="The 0 itself differs before the column that it selects.",
        scenarios=("chunked-prefill-backup-token", "mtp-drafter"),
        parts=lambda cache_mode: _device_only(DiscardedDeviceCounts),
    ),
    Fault(
        name="accepted-count-with-hole",
        number=19,
        kind=FaultKind.LOGIC,
        needs=HS,
        origin="vllm#38372",
        summary="a draft is blanked inside the accepted run, and what is left is counted",
        expect="sampled.sampled",
        note="The blanked token itself differs before it is counted.",
        scenarios=("constrained-rows",),
        kernels={"rejection_verify": blank_inside},
    ),
    Fault(
        name="accepted-count-with-hole:first-empty",
        number=19,
        kind=FaultKind.LOGIC,
        needs=HS,
        origin="vllm#38372",
        summary="a draft is blanked inside the accepted run, and tokens are counted up to the hole",
        expect="sampled.sampled",
        scenarios=("constrained-rows",),
        kernels={
            "rejection_verify": blank_inside,
            "accepted_count": lambda kernels: kernels.accepted_count_first_hole,
        },
    ),
    Fault(
        name="accepted-count-first-hole",
        number=19,
        kind=FaultKind.CONTROL,
        needs=HS,
        origin="vllm#38372",
        summary="tokens counted up to the first -1 instead of all: equal on every legal row",
        expect="nothing",
        note="Legal rows have no hole, so this alone changes nothing and has to stay silent.",
        scenarios=(),
        kernels={"accepted_count": lambda kernels: kernels.accepted_count_first_hole},
    ),
    Fault(
        name="all-wait-skipped",
        number=47,
        kind=FaultKind.ORDERING,
        needs=HSP,
        origin="vllm#50021, #30877",
        summary="cache mode all does not wait for counts, and remembers anchors from old ones",
        expect="inputs.conv",
        note="An anchor is read a step after it was remembered: so late does it show.",
        scenarios=("all-steady", "all-preempt-resume"),
        drops=frozenset({edges.VALID_COUNT_LANDED.name}),
        holds={"all-steady": ("d2h:valid_count@2 until host:correct@3",)},
    ),
)
