"""Historical designs of the accepted-count path, as variants that can be run like a fault
(docs/mechanism.md#landings).

A half-fix is right under one landing of the copy and wrong under another; the truth table measures
which (`racegate faults halffixes`). They are kept apart from the catalogue: two of the five are
right everywhere they can be used, so nothing may demand that they be found. Two controls with a
twin stand with them.
"""

from __future__ import annotations

from racegate.engine.rows.accepted_counts import DeviceCounts, PrivateCounts
from racegate.engine.rows.parts import RowParts
from racegate.engine.state.plan import PlanEntry
from racegate.engine.state.request_state import RequestState
from racegate.faults.accepted import (
    HS,
    EarlyWaitCounts,
    LiveRowCounts,
    RemappedRowCounts,
    live_parts,
)
from racegate.faults.fault import Fault, FaultKind, Need, the_parts
from racegate_kernels.backend import Backend, Kernel
from racegate_kernels.numerics import Array

VARIANTS = (
    Fault(
        name="counts/early-wait",
        number=0,
        kind=FaultKind.VARIANT,
        needs=HS,
        origin="vllm before #32951, vllm#51599",
        summary="counts land in live rows, awaited before the first row moves, read by current row",
        expect="nothing",
        scenarios=(),
        parts=lambda cache_mode: live_parts(EarlyWaitCounts),
    ),
    Fault(
        name="counts/live-rows",
        number=0,
        kind=FaultKind.VARIANT,
        needs=HS,
        origin="vllm#32951 until #38556",
        summary="counts land in live rows, awaited behind the row moves, read by current row",
        expect="inputs.accepted",
        scenarios=(),
        parts=lambda cache_mode: live_parts(LiveRowCounts),
    ),
    Fault(
        name="counts/previous-position-gather",
        number=0,
        kind=FaultKind.VARIANT,
        needs=HS,
        origin="vllm#38556 fix 2, vllm#51571",
        summary="counts land in live rows, awaited behind the row moves, read by previous row",
        expect="inputs.accepted",
        scenarios=(),
        parts=lambda cache_mode: live_parts(RemappedRowCounts),
    ),
    Fault(
        name="counts/device-authoritative",
        number=0,
        kind=FaultKind.VARIANT,
        needs=HS,
        origin="vllm#45100",
        summary="counts never leave the device",
        expect="nothing without prefix caching",
        scenarios=(),
        parts=the_parts(rows=RowParts(count_path=lambda cache_mode: DeviceCounts)),
    ),
    Fault(
        name="counts/private-snapshot",
        number=0,
        kind=FaultKind.VARIANT,
        needs=HS,
        origin="vllm#51571",
        summary="counts land in a buffer of their step's own, in its row order",
        expect="nothing",
        scenarios=(),
        parts=the_parts(rows=RowParts(count_path=lambda cache_mode: PrivateCounts)),
    ),
)


# Controls with a twin: they must not be seen where they change nothing, and must be where they do.


def last_known(computed: int, tokens: int, *, drafts_in_batch: int, known_len: int) -> int:
    """The last known token of the request instead of the one behind the chunk."""
    return known_len - 1


def scheduled_computed(entry: PlanEntry, state: RequestState) -> int:
    """The scheduler's count, which holds the optimism of every step in flight."""
    return entry.computed


def corrected_with_drafts(kernels: Backend) -> Kernel:
    """Corrects rows that had drafts; the others take the host's count."""

    def correct_computed(
        computed: Array,  # [R_max] int32, read and written
        computed_host: Array,  # [R] int32
        computed_source: Array,  # [R] int32
        prev_scheduled: Array,  # [R_max] int32
        prev_draft_lens: Array,  # [R_max] int32
        prev_valid_count: Array,  # [R_max] int32
    ) -> None:
        is_drafted = (computed_source >= 0) & (prev_draft_lens[computed_source.clip(0)] > 0)
        drafted = (computed_source + 1) * is_drafted - 1
        kernels.correct_computed(
            computed, computed_host, drafted, prev_scheduled, prev_draft_lens, prev_valid_count
        )

    return correct_computed


CONTROLS = (
    Fault(
        name="backup-token/last-known",
        number=0,
        kind=FaultKind.VARIANT,
        needs=(Need.SPECULATION,),
        origin="vllm#38556 fix 1",
        summary="the backup token is the request's last known one: seen in the drafter only",
        expect="prepared.backup_token",
        scenarios=("chunked-prefill-backup-token", "extract-hidden-states"),
        parts=the_parts(rows=RowParts(backup_index=last_known)),
    ),
    Fault(
        name="correction/drafted-rows-only",
        number=0,
        kind=FaultKind.VARIANT,
        needs=(Need.SPECULATION,),
        origin="vllm#32951",
        summary="rows without drafts take the scheduler's count: exact at depth 2, wrong at 3",
        expect="inputs.computed",
        note=(
            "The runner uploads a count of its own, exact but for the last step. The "
            "historical correction trusted the scheduler's count for rows without drafts: the "
            "same at depth 2, wrong at 3. The uploaded count is a part so that the difference "
            "can be run."
        ),
        scenarios=("depth-three",),
        parts=the_parts(rows=RowParts(host_computed=scheduled_computed)),
        kernels={"correct_computed": corrected_with_drafts},
    ),
)
