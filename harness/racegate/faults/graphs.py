"""Faults of captured graphs: which batch replays one, and what stands behind the batch
(docs/faults.md#captured-graphs).
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from racegate.device.masks import prefix_mask
from racegate.device.protocol import reads, writes
from racegate.engine.model.bound import BoundBuffers
from racegate.engine.model.padding import (
    BLOCKS,
    STATE_BLOCKS,
    STATE_WRITTEN,
    WRITTEN,
    Padding,
    is_uniform_decode,
)
from racegate.engine.model.parts import ModelParts
from racegate.engine.state.buffers import UploadedTwin
from racegate.engine.state.setup import Setup
from racegate.engine.state.view import BatchShape, StepView
from racegate.faults.fault import Fault, FaultKind, Need, the_parts
from racegate_kernels.backend import Backend
from racegate_kernels.numerics import Array

HG = (Need.HYBRID, Need.GRAPHS)
HSG = (Need.HYBRID, Need.SPECULATION, Need.GRAPHS)


def is_uniform(view: StepView, *, width: int) -> bool:
    """Looks at the shape only: a prompt chunk of 1 + k tokens passes for a decode row."""
    return bool(np.all(view.tokens == width))


def is_uniform_but_for_tail(view: StepView, *, width: int) -> bool:
    """Lets the last row be the one prompt token that is left, to be filled up with placeholders."""
    if not has_tail(view):
        return is_uniform_decode(view, width=width)
    return bool(np.all(view.is_decode[:-1])) and bool(np.all(view.tokens[:-1] == width))


def has_tail(view: StepView) -> bool:
    """Whether the last row is the last token of a prompt."""
    is_last = not view.is_decode[-1] and not view.discarded[-1]
    return bool(is_last and view.tokens[-1] == 1)


def fits_by_tokens(shape: BatchShape, size: int, *, width: int) -> bool:
    """Looks at the tokens only: many rows of few tokens pass for few rows."""
    return shape.tokens <= size * width


class PaddedTail(Padding):
    """The last prompt token gets placeholders up to 1 + k tokens, but is handled as prefill: its
    state is kept after the last of them (vllm#55178).
    """

    def __init__(self, setup: Setup, live: BoundBuffers, *, sizes: tuple[int, ...]) -> None:
        super().__init__(setup, live, sizes=sizes)
        shape = live.inputs.query_start.gpu.shape
        starts = setup.device.device_buffer(
            "query_start_padded", shape, np.int32, stream=setup.compute
        )
        self._starts = UploadedTwin(live.inputs.query_start.cpu, starts)

    @property
    def bound(self) -> BoundBuffers:
        """The row starts with the placeholders in them, and the flags, so that prefill rows can be
        told.
        """
        return replace(self.live, inputs=replace(self.live.inputs, query_start=self._starts))

    def warm_up(self) -> None:
        """Its own buffers, too."""
        super().warm_up()
        self._copy_starts(-1, self.rows_most, row=self.rows_most, placeholders=0)

    def refresh(self, view: StepView, size: int) -> None:
        super().refresh(view, size)
        placeholders = self.width - 1 if has_tail(view) else 0
        self._copy_starts(view.shape.step, size, row=view.shape.rows, placeholders=placeholders)

    def _copy_starts(self, step: int, size: int, *, row: int, placeholders: int) -> None:
        self.setup.kernels.launch_kernel(
            _padded_starts,
            {
                "query_start": reads(self.live.inputs.query_start.gpu, size + 1),
                "padded": writes(self._starts.gpu, size + 1),
            },
            name="padded_starts",
            step=step,
            row=row,
            placeholders=placeholders,
        )


def _padded_starts(
    kernels: Backend,
    query_start: Array,  # [R + 1] int32
    padded: Array,  # [R + 1] int32, written
    *,
    row: int,
    placeholders: int,
) -> None:
    padded[...] = query_start
    padded[row:] += placeholders


class Trespassing(Padding):
    """Pad rows whose tables may name any request's blocks: the footprint is all of the pools."""

    def masks(self, shape: BatchShape) -> dict[str, int]:
        """All rows of the pools."""
        blocks, state_blocks = map(prefix_mask, (self.engine.blocks, self.engine.state_blocks))
        return {
            BLOCKS: blocks,
            STATE_BLOCKS: state_blocks,
            WRITTEN: blocks,
            STATE_WRITTEN: state_blocks,
        }


class CountedInTokens(Trespassing):
    """Metadata of requests is padded from the number of tokens on, as if it were of tokens: rows
    between that and the batch keep the last step's (vllm#45100).
    """

    def refresh(self, view: StepView, size: int) -> None:
        shape = view.shape
        if size > shape.rows:
            # The start of pad row i is entry i + 1, and there are `size` rows in all.
            starts = (min(shape.tokens, size) + 1, size)
            self.pad_tokens(shape.step, starts, (shape.tokens, size * self.width), 0)
            self.pad_rows(shape.step, (min(shape.tokens, size), size))


class StaleRows(Trespassing):
    """Pad rows count as rows of 1 + k tokens, and their tables and counts are left as the last
    step had them.
    """

    def refresh(self, view: StepView, size: int) -> None:
        shape = view.shape
        if size > shape.rows:
            tokens = (shape.tokens, size * self.width)
            self.pad_tokens(shape.step, (shape.rows, size), tokens, self.width)


class UnrefreshedTail(Trespassing):
    """The graph is bound to metadata of its own, of which only the rows of the batch are refreshed;
    its row starts are those of a full batch (sglang#32555).
    """

    def __init__(self, setup: Setup, live: BoundBuffers, *, sizes: tuple[int, ...]) -> None:
        super().__init__(setup, live, sizes=sizes)
        starts = np.arange(self.rows_most + 1, dtype=np.int32) * self.width
        self._starts = UploadedTwin(
            live.inputs.query_start.cpu, setup.device.constant("query_start_captured", starts)
        )
        self._sources = (live.window_table, live.work.accepted, live.work.computed)
        self._own = tuple(
            setup.device.device_buffer(
                f"{source.name}_captured", source.shape, np.int32, stream=setup.compute
            )
            for source in self._sources
        )

    @property
    def bound(self) -> BoundBuffers:
        """Its own metadata."""
        bound = super().bound
        window_table, accepted, computed = self._own
        return BoundBuffers(
            inputs=replace(bound.inputs, query_start=self._starts),
            work=replace(bound.work, accepted=accepted, computed=computed),
            window_table=window_table,
        )

    def warm_up(self) -> None:
        super().warm_up()
        self._copy(-1, self.rows_most)

    def refresh(self, view: StepView, size: int) -> None:
        super().refresh(view, size)
        self._copy(view.shape.step, view.shape.rows)

    def _copy(self, step: int, rows: int) -> None:
        uses = dict(zip(_FROM, (reads(source, rows) for source in self._sources), strict=True))
        uses |= dict(zip(_TO, (writes(own, rows) for own in self._own), strict=True))
        self.setup.kernels.launch_kernel(_refresh, uses, name="refresh_captured", step=step)


class _Metadata(NamedTuple):
    """Of the rows of the batch."""

    window_table: Array  # [R, 1 + K] int32
    accepted: Array  # [R] int32
    computed: Array  # [R] int32


class _Captured(NamedTuple):
    """The graph's own. Written."""

    window_table_captured: Array  # [R, 1 + K] int32
    accepted_captured: Array  # [R] int32
    computed_captured: Array  # [R] int32


_FROM, _TO = _Metadata._fields, _Captured._fields


def _refresh(kernels: Backend, batch: _Metadata, captured: _Captured) -> None:
    for source, own in zip(batch, captured, strict=True):
        own[...] = source


FAULTS = (
    Fault(
        name="graph-dispatch-by-shape",
        number=32,
        kind=FaultKind.LOGIC,
        needs=HSG,
        origin="vllm#49918, #51865, vllm-ascend#12297",
        summary="a prompt chunk of 1 + k tokens replays the graph that is captured for decode rows",
        expect="sampled.conv",
        note="Of one layer the window is compared before the state, as it is read before it.",
        scenarios=("graph-prompt-k-plus-one",),
        parts=the_parts(model=ModelParts(dispatch=is_uniform)),
    ),
    Fault(
        name="graph-dispatch-by-shape:padded-tail-as-prefill",
        number=32,
        kind=FaultKind.LOGIC,
        needs=HSG,
        origin="vllm#55178",
        summary="the last prompt token is padded to 1 + k tokens and keeps the state behind them",
        expect="sampled.conv",
        scenarios=("graph-prompt-k-plus-one",),
        parts=the_parts(model=ModelParts(dispatch=is_uniform_but_for_tail, padding=PaddedTail)),
    ),
    Fault(
        name="graph-dispatch-by-shape:sized-by-tokens",
        number=32,
        kind=FaultKind.LOGIC,
        needs=HSG,
        origin="vllm#53515",
        summary="pieces are sized by the batch's tokens: rows behind the graph's last are not run",
        expect="sampled.conv",
        scenarios=("graph-piecewise-mixed",),
        parts=the_parts(model=ModelParts(fits=fits_by_tokens)),
    ),
    Fault(
        name="graph-padding-wrong",
        number=33,
        kind=FaultKind.LOGIC,
        needs=HG,
        origin="vllm#45100 part 2",
        summary="metadata of requests is padded by the count of tokens: pad rows stay as they were",
        expect="inputs.conv",
        note=(
            "Of one layer the window is compared before the state. Stale tables may name any "
            "block, so the footprint of a replay is the whole of the pools: it must be "
            "complete even of a fault."
        ),
        scenarios=("graph-parked-request", "graph-align"),
        parts=the_parts(model=ModelParts(padding=CountedInTokens)),
    ),
    Fault(
        name="graph-padding-wrong:stale-rows",
        number=33,
        kind=FaultKind.LOGIC,
        needs=HG,
        origin="vllm#56734, TensorRT-LLM#13151, #9873",
        summary="pad rows keep the last step's tables, which name a request outside the batch",
        expect="inputs.conv",
        scenarios=("graph-parked-request", "graph-align"),
        parts=the_parts(model=ModelParts(padding=StaleRows)),
    ),
    Fault(
        name="graph-padding-wrong:unrefreshed-tail",
        number=33,
        kind=FaultKind.LOGIC,
        needs=HG,
        origin="sglang#32555",
        summary="the graph is bound to metadata that is refreshed for the rows of the batch only",
        expect="inputs.conv",
        scenarios=("graph-parked-request", "graph-align"),
        parts=the_parts(model=ModelParts(padding=UnrefreshedTail)),
    ),
)
