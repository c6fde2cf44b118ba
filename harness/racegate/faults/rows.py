"""Faults of the persistent batch's rows (docs/faults.md#rows), and of requests that leave it with
frames in flight (docs/faults.md#requests-that-leave).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from racegate.device.protocol import HostBuffer, Use, reads, writes
from racegate.engine.decode.draft_weights import (
    DeviceDraftWeights,
    DraftWeights,
    count_drawn,
)
from racegate.engine.decode.parts import DecodeParts
from racegate.engine.rows.parts import RowParts, row_tables
from racegate.engine.scheduling.parts import SchedulingParts
from racegate.engine.state import edges
from racegate.engine.state.buffers import Inputs, StepOutputs, UploadedTwin
from racegate.engine.state.plan import PlanEntry
from racegate.engine.state.setup import Setup
from racegate.engine.state.tracked import Tracked
from racegate.engine.state.view import PrevStep, StepView
from racegate.faults.fault import Fault, FaultKind, Need, the_parts
from racegate_kernels.backend import Backend
from racegate_kernels.numerics import Array


def alias_rows(name: str) -> Callable[[HostBuffer, int, int], None]:
    """Swaps rows by exchanging two views of one table, which leaves both rows equal."""

    def swap(table: HostBuffer, first: int, second: int) -> None:
        if table.name == name:
            table.move_row(second, first)
        else:
            table.swap_rows(first, second)

    return swap


def without_state_table(inputs: Inputs) -> tuple[HostBuffer, ...]:
    """The state table stays where its rows were written, as if they were request slots."""
    return tuple(table for table in row_tables(inputs) if table is not inputs.state_table.cpu)


def without_block_table(inputs: Inputs) -> tuple[HostBuffer, ...]:
    """The same for the attention block table."""
    return tuple(table for table in row_tables(inputs) if table is not inputs.block_table.cpu)


class UnmovedDraftWeights(DeviceDraftWeights):
    """Weights of the previous step, by the row that the request has now."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        rows = np.arange(setup.sizes.rows, dtype=np.int32)
        self._own_rows = setup.device.constant("own_rows", rows)

    def given(self, view: StepView, prev: PrevStep, outputs: StepOutputs) -> Mapping[str, Use]:
        """Each row reads its own place."""
        weighed = super().given(view, prev, outputs)
        rows = np.flatnonzero(view.draft_lens > 0).tolist()
        owners = tuple((row, (view.rows[row], prev.step)) for row in rows)
        assert outputs.draft_weights is not None
        return {
            **weighed,
            "draft_weights": reads(outputs.draft_weights, expect=owners),
            "draft_source": reads(self._own_rows, view.shape.rows),
        }


class OldDraftWeights(DeviceDraftWeights):
    """Weights that are kept from step to step, and taken out before the last ones are put in."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        sizes = setup.sizes
        shape = (sizes.rows, sizes.drafts, sizes.drawn_vocab)
        self._kept = [
            setup.device.device_buffer(
                "kept_weights_gpu", shape, sizes.draft_weight, stream=setup.compute
            )
            for _ in range(2)
        ]
        self._steps = 0

    def given(self, view: StepView, prev: PrevStep, outputs: StepOutputs) -> Mapping[str, Use]:
        """Those that were put in one step earlier."""
        weighed = super().given(view, prev, outputs)
        if self._steps < 2:
            return weighed
        owners = weighed["draft_weights"].expect
        return {**weighed, "draft_weights": reads(self._kept[self._steps % 2], expect=owners)}

    def drawn(self, view: StepView, outputs: StepOutputs) -> None:
        """Puts the step's own in, in the place of the older ones."""
        rows = view.shape.rows
        assert outputs.draft_weights is not None
        self._setup.kernels.launch_kernel(
            _keep,
            {
                "draft_weights": reads(outputs.draft_weights, rows),
                "kept": writes(self._kept[self._steps % 2], rows, own=view.owners),
            },
            name="keep_weights",
            step=view.shape.step,
        )
        self._steps += 1


def _keep(
    kernels: Backend,
    draft_weights: Array,  # [R, K, V] int32 or float32
    kept: Array,  # [R, K, V] int32 or float32, written
) -> None:
    kept[...] = draft_weights


class LiveRowDraftWeights(DraftWeights):
    """Weights land in the batch's own rows on the host, which move while the copy is in flight, and
    are uploaded for the step that verifies. The wait stands right before the upload, behind the row
    moves.
    """

    def __init__(self, setup: Setup) -> None:
        sizes, device = setup.sizes, setup.device
        shape = (sizes.rows, sizes.drafts, sizes.drawn_vocab)
        self._setup = setup
        self._twin = UploadedTwin(
            device.host_buffer("draft_weights_cpu", shape, sizes.draft_weight),
            device.device_buffer(
                "live_weights_gpu", shape, sizes.draft_weight, stream=setup.compute
            ),
        )
        self._landed = device.event("draft_weights")
        self._own_rows = device.constant("own_rows", np.arange(sizes.rows, dtype=np.int32))

    @property
    def row_tables(self) -> tuple[HostBuffer, ...]:  # type: ignore[override]
        """The weights move like any row."""
        return (self._twin.cpu,)

    def stage(self, view: StepView, prev: PrevStep) -> None:
        """Waits, behind the row moves, and uploads row by row."""
        if prev.is_none:
            return
        step = view.shape.step
        self._setup.device.wait_host(self._landed, edges.DRAFTS_LANDED, step=step)
        self._setup.upload(self._twin, view.shape.rows, step=step)

    def given(self, view: StepView, prev: PrevStep, outputs: StepOutputs) -> Mapping[str, Use]:
        """What was uploaded, by the row that the request has now."""
        count_drawn(self._setup, view)
        rows = view.shape.rows
        return {
            "draft_weights": reads(self._twin.gpu),
            "draft_source": reads(self._own_rows, rows),
        }

    def drawn(self, view: StepView, outputs: StepOutputs) -> None:
        """Into the live rows."""
        setup, step = self._setup, view.shape.step
        assert outputs.draft_weights is not None
        setup.device.download(
            setup.compute,
            self._twin.cpu,
            outputs.draft_weights,
            "draft_weights",
            step=step,
            rows=view.shape.rows,
        )
        setup.device.record(setup.compute, self._landed)


def drain(tracked: Tracked, entry: PlanEntry, tokens: list[int]) -> None:
    """The late frame is settled against the counters of the new incarnation (vllm#48245)."""
    tracked.stale -= 1
    if not entry.is_discarded:
        tracked.computed -= entry.drafts + 1 - len(tokens)
        tracked.placeholders -= entry.drafts + 1
    tracked.deliver(tokens)


def discard(tracked: Tracked, entry: PlanEntry, tokens: list[int]) -> None:
    """The late frame is thrown away with its tokens (vllm#47900)."""
    tracked.stale -= 1


FAULTS = (
    Fault(
        name="row-swap-alias",
        number=26,
        kind=FaultKind.LOGIC,
        origin="vllm#48419",
        summary="a swap leaves both rows of the block table with the same content",
        expect="inputs.slot_mapping",
        scenarios=("prefill-to-decode-swap", "condense-and-reorder"),
        parts=the_parts(rows=RowParts(swap_rows=alias_rows("block_table_cpu"))),
    ),
    Fault(
        name="row-swap-alias:seed",
        number=26,
        kind=FaultKind.LOGIC,
        origin="vllm#48419, #51890",
        summary="a swap leaves both rows with the same sampling seed",
        expect="sampled.sampled",
        scenarios=("random-rows-change-hands",),
        parts=the_parts(rows=RowParts(swap_rows=alias_rows("seed_cpu"))),
    ),
    Fault(
        name="slot-vs-row-index",
        number=27,
        kind=FaultKind.LOGIC,
        needs=(Need.HYBRID,),
        origin="vllm#55951, #55506, #55507",
        summary="state blocks are looked up by batch row in a table that is indexed by slot",
        expect="sampled.state",
        scenarios=("finish-and-condense", "condense-and-reorder"),
        parts=the_parts(rows=RowParts(row_tables=without_state_table)),
    ),
    Fault(
        name="slot-vs-row-index:attention",
        number=27,
        kind=FaultKind.LOGIC,
        needs=(Need.HYBRID,),
        origin="vllm#55951, #55506, #55507",
        summary="attention blocks are looked up by batch row in a table that is indexed by slot",
        expect="inputs.slot_mapping",
        scenarios=("finish-and-condense", "condense-and-reorder"),
        parts=the_parts(rows=RowParts(row_tables=without_block_table)),
    ),
    Fault(
        name="draft-weights-landed-behind-move",
        number=36,
        kind=FaultKind.ORDERING,
        needs=(Need.SPECULATION,),
        origin="vllm#38556, #41044",
        summary="what drafts were drawn from lands in live rows: fails when it lands late",
        expect="sampled.sampled",
        note="The design of `accepted-copy-after-row-move`, with another value.",
        scenarios=("drawn-drafts",),
        holds={"drawn-drafts": ("d2h:draft_weights@2 until host:rotate@3",)},
        parts=the_parts(decode=DecodeParts(draft_weights=LiveRowDraftWeights)),
    ),
    Fault(
        name="draft-weights-not-moved",
        number=37,
        kind=FaultKind.LOGIC,
        needs=(Need.SPECULATION,),
        origin="vllm#41044, #40269",
        summary="what drafts were drawn from stays in its row when the request moves",
        expect="sampled.sampled",
        scenarios=("drawn-drafts",),
        parts=the_parts(decode=DecodeParts(draft_weights=UnmovedDraftWeights)),
    ),
    Fault(
        name="draft-weights-not-moved:earlier-step",
        number=37,
        kind=FaultKind.LOGIC,
        needs=(Need.SPECULATION,),
        origin="vllm#40269, #44869",
        summary="drafts are verified against what those of one step earlier were drawn from",
        expect="sampled.sampled",
        scenarios=("drawn-drafts",),
        parts=the_parts(decode=DecodeParts(draft_weights=OldDraftWeights)),
    ),
)

DEPARTURES = (
    Fault(
        name="late-frame-misapplied",
        number=34,
        kind=FaultKind.LOGIC,
        origin="vllm#48245, sglang#23456",
        summary="a frame of a preempted request is settled against its reset counters",
        expect="processed.placeholders",
        scenarios=("preempt-and-resume", "preempt-for-want-of-blocks"),
        parts=the_parts(scheduling=SchedulingParts(take_late=drain)),
    ),
    Fault(
        name="late-frame-misapplied:discarded",
        number=34,
        kind=FaultKind.LOGIC,
        origin="vllm#47900, #42117",
        summary="a frame of a preempted request is thrown away with its tokens",
        expect="processed.delivered",
        scenarios=("preempt-and-resume", "preempt-for-want-of-blocks"),
        parts=the_parts(scheduling=SchedulingParts(take_late=discard)),
    ),
)
