"""Faults in optimistic lengths, drafts and their correction
(docs/faults.md#optimism-and-its-correction).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from racegate.device.protocol import DeviceBuffer
from racegate.engine.decode.parts import DecodeParts
from racegate.engine.model.head import inside
from racegate.engine.rows.parts import RowParts
from racegate.engine.scheduling.parts import SchedulingParts
from racegate.engine.state.buffers import Inputs, WorkBuffers
from racegate.engine.state.tracked import Tracked
from racegate.engine.state.view import PrevStep
from racegate.faults.fault import Fault, FaultKind, Need, the_parts
from racegate_kernels.backend import Backend, Kernel
from racegate_kernels.numerics import Array

S = (Need.SPECULATION,)


def inflated_by_drafts(computed: int, tokens: int, *, drafts_in_batch: int, known_len: int) -> int:
    """Looks behind the drafts that the padded batch length counts: K, where a row has all of
    its.
    """
    return computed + tokens + drafts_in_batch


def inflated_by_one(computed: int, tokens: int, *, drafts_in_batch: int, known_len: int) -> int:
    """Looks one behind, if any row has drafts."""
    return computed + tokens + min(1, drafts_in_batch)


def inflated_by_two_steps(
    computed: int, tokens: int, *, drafts_in_batch: int, known_len: int
) -> int:
    """Looks behind the drafts of two steps in flight."""
    return computed + tokens + 2 * drafts_in_batch


def uncorrected_lengths(inputs: Inputs, work: WorkBuffers) -> DeviceBuffer:
    """Positions, lengths and slots from the host's optimistic counts."""
    return inputs.computed_host.gpu


def uncorrected_coordinates(inputs: Inputs, work: WorkBuffers) -> DeviceBuffer:
    """Three-dimensional positions as the host counted them: there is nothing to correct them to."""
    return inputs.computed_host.gpu


def current_rows(
    prev_positions: np.ndarray,  # [R] int32
) -> np.ndarray:
    """Gathers the previous step's values by this step's rows."""
    rows = np.arange(len(prev_positions), dtype=np.int32)
    return np.where(prev_positions >= 0, rows, -1).astype(np.int32)


def row_zero(
    prev_positions: np.ndarray,  # [R] int32
) -> np.ndarray:
    """Takes 'no previous row' for row 0, in a step that has previous rows at all."""
    return np.maximum(prev_positions, 0) if (prev_positions >= 0).any() else prev_positions


def corrected_if_present(prev: PrevStep, row_of: Mapping[str, int]) -> list[int]:
    """Forgets requests that skip this step."""
    return [row for row, name in enumerate(prev.requests) if name in row_of]


def parked_drafts(tracked: Tracked) -> int:
    """Schedules the drafts that were promised before the gap; on the device they are -1."""
    return tracked.drafts_next


def behind_rejected(
    positions: Array,  # [T] int32
    last_index: Array,  # [R] int32
    query_start: Array,  # [R + 1] int32
    mrope_positions: Array | None,
) -> Array:
    """[R] int32: goes on behind the row's last input, rejected drafts included."""
    return positions[inside(query_start[1:] - 1, positions)]


def behind_coordinate(
    positions: Array,  # [T] int32
    last_index: Array,  # [R] int32
    query_start: Array,
    mrope_positions: Array | None,  # [T, 3] int32
) -> Array:
    """[R] int32: goes on behind the first coordinate, as if it were the position."""
    places = positions if mrope_positions is None else mrope_positions[:, 0]
    return places[inside(last_index, places)]


def _counting(like: Array) -> Array:
    """[n] 0, 1, 2, ...: an arange on any backend."""
    return (like * 0 + 1).cumsum(0) - 1


def _from_current_rows(
    kernels: Backend,
    input_ids: Array,
    query_start: Array,
    prev_positions: Array,  # [R] int32
    draft_lens: Array,
    next_token: Array,  # [R_max] int32
    drafts: Array,  # [>= R, K] int32, by rows of this step
) -> None:
    """Tokens from each row's previous row, as they should be; drafts from its own."""
    has_previous = prev_positions >= 0
    rows = (_counting(prev_positions) + 1) * has_previous - 1
    tokens = next_token[prev_positions.clip(0)]
    kernels.scatter_inputs(input_ids, query_start, rows, draft_lens, tokens, drafts[: len(tokens)])


def drafts_in_current_order(kernels: Backend) -> Kernel:
    """Each row takes the drafts at its own row instead of its previous one; tokens are right."""
    return partial(_from_current_rows, kernels)


def drafts_packed(kernels: Backend) -> Kernel:
    """Drafts are taken as if those of all rows lay one behind another, whatever their number."""

    def scatter_inputs(
        input_ids: Array,
        query_start: Array,
        prev_positions: Array,  # [R] int32
        draft_lens: Array,  # [R] int32
        next_token: Array,
        drafts: Array,  # [R_max, K] int32
    ) -> None:
        flat = drafts.reshape(-1)
        first = draft_lens.cumsum(0) - draft_lens
        packed = flat[first[:, None] + _counting(flat[: drafts.shape[1]])]
        rows = (input_ids, query_start, prev_positions, draft_lens, next_token)
        _from_current_rows(kernels, *rows, packed)

    return scatter_inputs


def untrimmed(kernels: Backend) -> Kernel:
    """Inputs are tokens, but verification goes on to the last draft that was scheduled."""

    def trim_drafts(
        prev_drafts: Array,  # [R_max, K] int32
        prev_positions: Array,  # [R] int32
        draft_lens: Array,  # [R] int32
        query_start: Array,  # [R + 1] int32
        logit_index: Array,  # [R, 1 + K] int32, left as it was
        input_ids: Array,  # [T] int32, written
    ) -> None:
        rows = (prev_positions, draft_lens, query_start)
        kernels.trim_drafts(prev_drafts, *rows, logit_index + 0, input_ids)

    return trim_drafts


def _trims_nothing(*arrays: Array) -> None:
    """Missing drafts stay what they are."""


FAULTS = (
    Fault(
        name="backup-token-inflated-index",
        number=17,
        kind=FaultKind.LOGIC,
        needs=S,
        origin="vllm#38556 fix 1, #38419",
        summary="the backup token is looked up at a length that counts unverified drafts",
        expect="prepared.backup_token",
        note=(
            "Historically a host length that held unverified drafts. Here a prefill row's own "
            "length never does, so the defect enters where a padded batch length would bring "
            "it in: the most drafts of any row are counted on top of the chunk."
        ),
        scenarios=("chunked-prefill-backup-token", "extract-hidden-states"),
        parts=the_parts(rows=RowParts(backup_index=inflated_by_drafts)),
    ),
    Fault(
        name="correction-wrong-epoch",
        number=21,
        kind=FaultKind.LOGIC,
        needs=S,
        origin="vllm#38556, #55951, #42760",
        summary="the correction gathers the previous step's values by this step's rows",
        expect="inputs.computed",
        scenarios=("three-row-cycle", "finish-and-condense"),
        parts=the_parts(rows=RowParts(correction_rows=current_rows)),
    ),
    Fault(
        name="correction-wrong-epoch:row-zero",
        number=21,
        kind=FaultKind.LOGIC,
        needs=S,
        origin="vllm#42760",
        summary="the correction takes 'no previous row' for row 0",
        expect="inputs.computed",
        scenarios=("finish-and-condense", "chunked-prefill-backup-token"),
        parts=the_parts(rows=RowParts(correction_rows=row_zero)),
    ),
    Fault(
        name="correction-partial-fields",
        number=22,
        kind=FaultKind.LOGIC,
        needs=S,
        origin="vllm#32951 review",
        summary="counts are corrected, but positions, lengths and slots use the uncorrected copy",
        expect="inputs.seq_lens",
        note="Lengths are built before slots.",
        scenarios=("steady-mixed-accepts", "all-rejected-all-accepted"),
        parts=the_parts(rows=RowParts(length_source=uncorrected_lengths)),
    ),
    Fault(
        name="correction-partial-fields:mrope",
        number=22,
        kind=FaultKind.LOGIC,
        needs=S,
        origin="vllm#32951 review",
        summary="positions are corrected, three-dimensional ones stay as the host counted them",
        expect="inputs.mrope_positions",
        scenarios=("mrope-image", "mrope-text"),
        parts=the_parts(rows=RowParts(mrope_source=uncorrected_coordinates)),
    ),
    Fault(
        name="correction-lost-over-gap",
        number=23,
        kind=FaultKind.LOGIC,
        needs=S,
        origin="vllm#46899, #40768, #43434",
        summary="a request that skips a step loses the correction of its last one",
        expect="inputs.accepted",
        note=(
            "The correction that is lost carries the accepted count too, which is compared "
            "before lengths."
        ),
        scenarios=("scheduling-gap", "depth-three"),
        parts=the_parts(rows=RowParts(corrected=corrected_if_present)),
    ),
    Fault(
        name="stale-placeholder-leak",
        number=24,
        kind=FaultKind.LOGIC,
        needs=S,
        origin="vllm#46899, #30916",
        summary="placeholders of drafts survive a gap and are scheduled",
        expect="scheduled.plan",
        note="The stale drafts are scheduled before they are embedded.",
        scenarios=("scheduling-gap", "depth-three"),
        parts=the_parts(scheduling=SchedulingParts(drafts_after_gap=parked_drafts)),
    ),
    Fault(
        name="missing-drafts-verified",
        number=38,
        kind=FaultKind.LOGIC,
        needs=S,
        origin="vllm#29184, #40704",
        summary="a missing draft is verified as the token that stands in its place",
        expect="sampled.sampled",
        note="Right by chance where token 0 is drawn: then more tokens come in one step.",
        scenarios=("ngram-drafts",),
        kernels={"trim_drafts": untrimmed},
    ),
    Fault(
        name="missing-drafts-verified:placeholder",
        number=38,
        kind=FaultKind.LOGIC,
        needs=S,
        origin="vllm#29184, #40768",
        summary="the placeholder of a missing draft reaches the embedding",
        expect="inputs.input_ids",
        scenarios=("ngram-drafts",),
        kernels={"trim_drafts": lambda kernels: _trims_nothing},
    ),
    Fault(
        name="draft-scatter-wrong-rows",
        number=25,
        kind=FaultKind.LOGIC,
        needs=S,
        origin="vllm#43434",
        summary="drafts are put where this step's rows stand, not where the previous step's stood",
        expect="inputs.input_ids",
        scenarios=("two-row-cycle", "finish-and-condense"),
        kernels={"scatter_inputs": drafts_in_current_order},
    ),
    Fault(
        name="draft-scatter-wrong-rows:packed",
        number=25,
        kind=FaultKind.LOGIC,
        needs=S,
        origin="TensorRT-LLM#17240",
        summary="drafts are read with one stride although rows have different numbers of them",
        expect="inputs.input_ids",
        scenarios=("zero-draft-after-high-accept", "scheduling-gap"),
        kernels={"scatter_inputs": drafts_packed},
    ),
    Fault(
        name="drafter-length-keeps-rejected",
        number=28,
        kind=FaultKind.LOGIC,
        needs=S,
        origin="vllm#26498",
        summary="the drafter's further passes go on behind the rejected drafts",
        expect="sampled.drafts",
        scenarios=("mtp-drafter",),
        parts=the_parts(decode=DecodeParts(draft_start=behind_rejected)),
    ),
    Fault(
        name="drafter-slots-by-mrope",
        number=39,
        kind=FaultKind.LOGIC,
        needs=S,
        origin="vllm#54498",
        summary="the drafter's further passes take a coordinate for the position of their entries",
        expect="sampled.draft_kv",
        note=(
            "Behind an image the coordinates lag the positions: the passes overwrite entries of "
            "the prompt, and look at too few."
        ),
        scenarios=("mrope-moves",),
        parts=the_parts(decode=DecodeParts(draft_start=behind_coordinate)),
    ),
)


def _inflated(name: str, summary: str, index: Callable[..., int]) -> Fault:
    return Fault(
        name=f"backup-token-inflated-index:{name}",
        number=17,
        kind=FaultKind.VARIANT,
        needs=S,
        origin="vllm#38419",
        summary=f"the backup token is looked up {summary} too far",
        expect="prepared.backup_token",
        scenarios=("chunked-prefill-backup-token", "extract-hidden-states"),
        parts=the_parts(rows=RowParts(backup_index=index)),
    )


VARIANTS = (
    _inflated("by-one", "one position", inflated_by_one),
    _inflated("by-two-steps", "the drafts of two steps", inflated_by_two_steps),
)
