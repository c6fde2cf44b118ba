"""Faults of recurrent states: which slot is read, and where states are kept
(docs/faults.md#recurrent-states).
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature

import numpy as np

from racegate.device.protocol import DeviceBuffer
from racegate.engine.cache.align_cache import AlignCache, Moves
from racegate.engine.cache.all_cache import AllCache
from racegate.engine.cache.parts import CacheParts
from racegate.engine.model.model import Model
from racegate.engine.rows.parts import RowParts
from racegate.engine.scheduling.parts import SchedulingParts
from racegate.engine.state.plan import PlanEntry
from racegate.engine.state.request_state import RequestState, enter
from racegate.engine.state.setup import Setup
from racegate.engine.state.tracked import Tracked
from racegate.engine.state.view import StepView
from racegate.faults.fault import Fault, FaultKind, Need, the_parts
from racegate_kernels.backend import EAGER, Backend, Kernel
from racegate_kernels.numerics import Array

H = (Need.HYBRID,)
HS = (Need.HYBRID, Need.SPECULATION)
HP = (Need.HYBRID, Need.PREFIX_CACHE)
HSP = (*HS, Need.PREFIX_CACHE)


def _column_zero(accepted: Array, query_start: Array) -> Array:
    """[R] int32: 1 for rows of one token, else the count."""
    is_single = query_start[1:] - query_start[:-1] == 1
    return accepted - (accepted - 1) * is_single


def _with_counts(kernel: Kernel) -> Kernel:
    """A state update that reads state column 0 for rows without drafts."""

    def update(*arrays: Array, **options: Array | None) -> Array:
        *front, query_start, accepted, computed, is_decode = arrays
        count = _column_zero(accepted, query_start)
        return kernel(*front, query_start, count, computed, is_decode, **options)

    return update


def _with_last_request(kernel: Kernel) -> Kernel:
    """A state update that takes what is in the block for the state of a fresh request."""

    def update(*arrays: Array, **options: Array | None) -> Array:
        *front, query_start, accepted, computed, is_decode = arrays
        has_state = computed + (computed == 0)
        return kernel(*front, query_start, accepted, has_state, is_decode, **options)

    return update


def _with_last_request_if_single(kernel: Kernel) -> Kernel:
    """The same where the first chunk is one token: it passes for a decode step."""

    def update(*arrays: Array, **options: Array | None) -> Array:
        *front, query_start, accepted, computed, is_decode = arrays
        is_single = query_start[1:] - query_start[:-1] == 1
        has_state = computed + (computed == 0) * is_single
        return kernel(*front, query_start, accepted, has_state, is_decode, **options)

    return update


_RECURRENT = ("mamba2_update", "gated_delta_update")


def _on(
    names: tuple[str, ...], variant: Callable[[Kernel], Kernel]
) -> dict[str, Callable[[Backend], Kernel]]:
    """The variant of each named kernel."""

    def make(name: str) -> Callable[[Backend], Kernel]:
        return lambda kernels: variant(getattr(kernels, name))

    return {name: make(name) for name in names}


def keep_column(entry: PlanEntry, earlier: RequestState | None) -> RequestState:
    """A resumed request goes on with the state column of its last incarnation (vllm#35157)."""
    state = enter(entry, earlier)
    if earlier is not None:
        state.column = earlier.column
        state.accepted_last = earlier.accepted_last
    return state


class ResetInPlace(AlignCache):
    """Every layer makes its own boundary plan, and the first one resets the count that the next
    one reads (vllm#50432).
    """

    def keep_states(self, view: StepView) -> None:
        """Chooses and copies layer by layer."""
        work = self._setup.work
        accepted = work.accepted
        for layer in self.layers:
            self.choose(view, accepted)
            self.copy(view.shape, (layer,))
            accepted = work.accepted_out


_ARRAYS = tuple(signature(EAGER.boundary_plan).parameters)[:-1]  # the last is the interval


def _chosen(kernels: Backend, *arrays: Array, interval: int) -> dict[str, Array]:
    """The arrays of a boundary plan by name, once it is made."""
    kernels.boundary_plan(*arrays, interval=interval)
    return dict(zip(_ARRAYS, arrays, strict=True))


def backward_at_boundary(kernels: Backend) -> Kernel:
    """Where the accepted tokens end exactly on a boundary, the copy runs backward."""

    def boundary_plan(*arrays: Array, interval: int) -> None:
        plan = _chosen(kernels, *arrays, interval=interval)
        reached = plan["computed"] + plan["scheduled"] - plan["draft_lens"] + plan["accepted"] - 1
        is_exact = (reached % interval == 0) * 1
        swap = (plan["target"] - plan["state_source"]) * is_exact
        plan["state_source"][...] += swap
        plan["target"][...] -= swap

    return boundary_plan


def advanced_length(kernels: Backend) -> Kernel:
    """The boundary is decided from a length that counts this step's tokens already."""

    def boundary_plan(accepted: Array, computed: Array, *rest: Array, interval: int) -> None:
        kernels.boundary_plan(accepted, computed + rest[0], *rest, interval=interval)

    return boundary_plan


def dropped_in_mixed_batch(kernels: Backend) -> Kernel:
    """A batch with a prefill row keeps no boundary; the block is published all the same."""

    def boundary_plan(*arrays: Array, interval: int) -> None:
        plan = _chosen(kernels, *arrays, interval=interval)
        is_pure = plan["is_decode"].min() * 1
        plan["state_source"][...] *= is_pure
        plan["window_source"][...] *= is_pure
        kept = plan["accepted_out"]
        kept[...] = plan["accepted"] + (kept - plan["accepted"]) * is_pure

    return boundary_plan


def settled_only(tracked: Tracked) -> int:
    """Reserves for what has been verified, not for the steps in flight."""
    return tracked.settled


class OptimisticAnchor(AllCache):
    """Anchors are remembered when a step is prepared, with every draft in flight accepted."""

    def decide(self, view: StepView, accepted_host: np.ndarray) -> Moves:
        """Before the host's counts are exact. accepted_host: [R] int32"""
        pairs = zip(view.entries, view.states, strict=True)
        self._early = [(state.computed + entry.tokens) // self._interval for entry, state in pairs]
        return super().decide(view, accepted_host)

    def keep_boundaries(self, view: StepView) -> DeviceBuffer:
        """[R] int32, the counts as they are; nothing is remembered anew."""
        for early, state in zip(self._early, view.states, strict=True):
            state.column = early
        return self._setup.work.accepted


class AnchorByRow(AllCache):
    """The anchors of the last step stay in its rows."""

    def __init__(self, setup: Setup, model: Model) -> None:
        super().__init__(setup, model)
        self._of_row = [-1] * setup.sizes.rows

    def stage(self, view: StepView, moves: Moves) -> None:
        """Each row takes the one that its row has, unless nothing went on there."""
        for row, state in enumerate(view.states):
            if state.column >= 0:
                state.column = self._of_row[row]
        super().stage(view, moves)

    def keep_boundaries(self, view: StepView) -> DeviceBuffer:
        """[R] int32, the counts as they are; the anchors, by row."""
        accepted = super().keep_boundaries(view)
        for row, state in enumerate(view.states):
            self._of_row[row] = state.column
        return accepted


class AnchorOfFullSteps(AllCache):
    """An anchor is remembered of steps with all drafts; others are guessed from the length."""

    def keep_boundaries(self, view: StepView) -> DeviceBuffer:
        """[R] int32, the counts as they are; the guess is that of a step of one token."""
        accepted = super().keep_boundaries(view)
        for entry, state in zip(view.entries, view.states, strict=True):
            if entry.is_decode and entry.drafts < self._setup.sizes.drafts:
                state.column = state.computed // self._interval
        return accepted


def from_new_anchor(kernels: Backend) -> Kernel:
    """A row looks for its state where this step's running columns begin."""

    def token_blocks(
        computed: Array,
        query_start: Array,
        accepted: Array,
        anchor: Array,
        *rest: Array,
        interval: int,
    ) -> None:
        new = (computed + query_start[1:] - query_start[:-1]) // interval
        known = (anchor >= 0) * 1
        moved = anchor + (new - anchor) * known
        kernels.token_blocks(computed, query_start, accepted, moved, *rest, interval=interval)

    return token_blocks


FAULTS = (
    Fault(
        name="accepted-reset-in-place",
        number=14,
        kind=FaultKind.LOGIC,
        needs=(*HS, Need.PREFIX_CACHE),
        origin="vllm#50432",
        summary="the first layer's state move resets the count that the next layer reads",
        expect="sampled.checkpoint",
        note=(
            "Logic, not ordering as in production: all layers are on one stream here, which "
            "orders them."
        ),
        scenarios=("align-boundary-and-prefix-hit",),
        parts=the_parts(cache=CacheParts(align_cache=ResetInPlace)),
    ),
    Fault(
        name="nonspec-reads-slot-zero",
        number=29,
        kind=FaultKind.LOGIC,
        needs=HS,
        origin="vllm#39273, #40738",
        summary="a row without drafts reads state column 0 instead of the last accepted one",
        expect="sampled.conv",
        note="Of one layer the window is compared before the state, as it is read before it.",
        scenarios=("zero-draft-after-high-accept", "scheduling-gap"),
        kernels=_on((*_RECURRENT, "conv_update"), _with_counts),
    ),
    Fault(
        name="nonspec-reads-slot-zero:conv-offset-dropped",
        number=29,
        kind=FaultKind.LOGIC,
        needs=HS,
        origin="vllm#52942, #55504",
        summary="the recurrent state is restored for such a row, the offset of its window is not",
        expect="sampled.conv",
        scenarios=("zero-draft-after-high-accept", "scheduling-gap"),
        kernels=_on(("conv_update",), _with_counts),
    ),
    Fault(
        name="stale-tenant-state",
        number=30,
        kind=FaultKind.LOGIC,
        needs=H,
        origin="vllm#56524",
        summary="a fresh request starts from what its block's last request left",
        expect="sampled.conv",
        note="Of one layer the window is compared before the state, as it is read before it.",
        scenarios=("add-into-hole",),
        kernels=_on((*_RECURRENT, "conv_update"), _with_last_request),
    ),
    Fault(
        name="stale-tenant-state:single-token",
        number=30,
        kind=FaultKind.LOGIC,
        needs=H,
        origin="vllm#32118, #51562",
        summary="a first chunk of one token is taken for a decode step and reads its block",
        expect="sampled.conv",
        scenarios=("prompt-k-plus-one",),
        kernels=_on((*_RECURRENT, "conv_update"), _with_last_request_if_single),
    ),
    Fault(
        name="stale-tenant-state:resume",
        number=30,
        kind=FaultKind.LOGIC,
        needs=H,
        origin="vllm#35157",
        summary="a resumed request goes on with the state column of its last incarnation",
        expect="inputs.accepted",
        note="The kept column takes its count along, which is compared first.",
        scenarios=("preempt-and-resume", "align-resume-from-prefix"),
        parts=the_parts(rows=RowParts(enter=keep_column)),
    ),
    Fault(
        name="boundary-migration-wrong",
        number=31,
        kind=FaultKind.LOGIC,
        needs=HP,
        origin="vllm#53505",
        summary="at an exact boundary the state is copied backward",
        expect="sampled.checkpoint",
        scenarios=("align-boundary-and-prefix-hit", "align-resume-from-prefix"),
        kernels={"boundary_plan": backward_at_boundary},
    ),
    Fault(
        name="boundary-migration-wrong:advanced-length",
        number=31,
        kind=FaultKind.LOGIC,
        needs=HP,
        origin="sglang#29792",
        summary="the boundary is decided from a length that is advanced already",
        expect="sampled.checkpoint",
        scenarios=("align-resume-from-prefix", "align-boundary-and-prefix-hit"),
        kernels={"boundary_plan": advanced_length},
    ),
    Fault(
        name="boundary-migration-wrong:mixed-batch",
        number=31,
        kind=FaultKind.LOGIC,
        needs=HP,
        origin="sglang#39342",
        summary="a batch with a prefill row keeps no boundary state, but publishes its block",
        expect="sampled.checkpoint",
        scenarios=("align-boundary-and-prefix-hit", "align-resume-from-prefix"),
        kernels={"boundary_plan": dropped_in_mixed_batch},
    ),
    Fault(
        name="freed-on-optimistic-count",
        number=35,
        kind=FaultKind.LOGIC,
        needs=(Need.SPECULATION,),
        origin="vllm#47728, #33997",
        summary="blocks are reserved for a count that leaves out the steps in flight",
        expect="scheduled.block_table",
        note="The block table is too short before any slot shows it.",
        scenarios=("steady-mixed-accepts",),
        parts=the_parts(scheduling=SchedulingParts(reserved=settled_only)),
    ),
    Fault(
        name="anchor-moved-by-drafts",
        number=48,
        kind=FaultKind.LOGIC,
        needs=HSP,
        origin="vllm#41233, #33997",
        summary="the column of the running state counts drafts that were rejected",
        expect="inputs.conv",
        scenarios=("all-steady", "all-preempt-resume"),
        parts=the_parts(cache=CacheParts(all_cache=OptimisticAnchor)),
    ),
    Fault(
        name="anchor-moved-by-drafts:this-step",
        number=48,
        kind=FaultKind.LOGIC,
        needs=HSP,
        origin="vllm#41233",
        summary="the state is read where the new step writes, not where the last one did",
        expect="inputs.conv",
        scenarios=("all-steady", "all-middle-hit", "slots-all-hits"),
        kernels={"token_blocks": from_new_anchor},
    ),
    Fault(
        name="anchor-of-another-step",
        number=49,
        kind=FaultKind.LOGIC,
        needs=HP,
        origin="vllm#54637",
        summary="anchors of the last step stay in its rows when requests move",
        expect="inputs.conv",
        scenarios=("all-graphs", "all-preempt-resume"),
        parts=the_parts(cache=CacheParts(all_cache=AnchorByRow)),
    ),
    Fault(
        name="anchor-of-another-step:short-steps",
        number=49,
        kind=FaultKind.LOGIC,
        needs=HSP,
        origin="vllm#41233, #54637",
        summary="a step with fewer drafts leaves no anchor, and one is guessed from the length",
        expect="inputs.conv",
        scenarios=("all-preempt-resume",),
        parts=the_parts(cache=CacheParts(all_cache=AnchorOfFullSteps)),
    ),
)
