"""Negative controls with a twin: changes that must not be seen where they change nothing, and must
be where they do.

The controls that change nothing anywhere are in the catalogue (`accepted-count-first-hole`).
"""

from __future__ import annotations

from racegate.engine.rows.parts import RowParts
from racegate.engine.state.plan import PlanEntry
from racegate.engine.state.request_state import RequestState
from racegate.faults.fault import Fault, FaultKind, Need, the_parts
from racegate_kernels.backend import Backend, Kernel
from racegate_kernels.numerics import Array


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


VARIANTS = (
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
