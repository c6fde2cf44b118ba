"""The MTP drafter: a real draft layer with its own cache. DEFINITION section 4."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from racegate.device.protocol import DeviceBuffer, Use, reads, updates, writes
from racegate.engine.decode.drafter import Drafter, shift_inputs
from racegate.engine.model.head import HeadWeights, inside, logits_of
from racegate.engine.model.layers import (
    AttentionShape,
    AttentionWeights,
    PagedRows,
    Residual,
    attention_layer,
    attention_shape,
)
from racegate.engine.model.model import Model, mrope_uses
from racegate.engine.state.buffers import StepOutputs
from racegate.engine.state.setup import Setup
from racegate.engine.state.view import StepView
from racegate_kernels.backend import Backend
from racegate_kernels.numerics import Array

Start = Callable[[Array, Array, Array, Array | None], Array]


class DraftLayerWeights(NamedTuple):
    """Parameters of the draft layer, and those it shares with the model; shapes: model/weights."""

    embed: Array
    fc_token: Array
    fc_hidden: Array
    qkv_proj: Array
    out_proj: Array
    lm_head: Array
    norm: Array | None = None
    qkv_bias: Array | None = None
    q_norm: Array | None = None
    k_norm: Array | None = None
    out_bias: Array | None = None
    token_norm: Array | None = None
    hidden_norm: Array | None = None
    final_norm: Array | None = None

    @property
    def attention(self) -> AttentionWeights:
        """Those of its attention layer."""
        return AttentionWeights(*(getattr(self, name) for name in AttentionWeights._fields))

    @property
    def head(self) -> HeadWeights:
        """Those behind it."""
        return HeadWeights(self.lm_head, self.final_norm)


class DraftInputs(NamedTuple):
    """What the first pass drafts from."""

    shifted_ids: Array  # [T] int32
    hidden: Array  # [T, D], target hidden states
    last_index: Array  # [R] int32


class DraftState(NamedTuple):
    """What a pass leaves for the next one."""

    cache: Array  # [B, S, 2GP], read and written; G key heads
    draft_hidden: Array  # [R, D], read and written
    drafts: Array  # [R, K] int32, a column per pass


class DraftDrawing(NamedTuple):
    """What drafts are drawn by, and from; nothing where they are greedy."""

    temperature: Array | None = None  # [R] float32
    seed: Array | None = None  # [R] uint32
    draft_weights: Array | None = None  # [R, K, V] int32 or float32, a column per pass


class DraftBase(NamedTuple):
    """Where the passes behind the first go on from."""

    last_index: Array  # [R] int32
    query_start: Array  # [R + 1] int32
    block_table: Array  # [R, M] int32
    positions: Array  # [T] int32
    row_starts: Array  # [R + 1] int32, one token per row
    mrope_positions: Array | None = None  # [T, 3] int32


class DraftPlace(NamedTuple):
    """Where such a pass stands, one token per row. Written."""

    draft_positions: Array  # [R] int32
    draft_seq_lens: Array  # [R] int32
    draft_slots: Array  # [R] int32


class DraftPass(NamedTuple):
    """One of the passes behind the first. column: of drafts, that it writes."""

    column: int
    start: Start
    shape: AttentionShape
    block_size: int
    model_len_max: int


# Parameters that are the model's, and those of the drafter that its kernels call otherwise.
_SHARED = ("embed", "lm_head", "final_norm")
_FC = {"fc_token": "draft.fc.token", "fc_hidden": "draft.fc.hidden"}


class MtpDrafter(Drafter):
    """A real layer with its own cache: one pass over the step's tokens, then K - 1 single-token
    passes.
    """

    cache: DeviceBuffer

    def __init__(self, setup: Setup, model: Model, *, start: Start) -> None:
        engine, spec, sizes = setup.scenario.engine, setup.scenario.model, setup.sizes
        device = setup.device
        self._setup = setup
        self._weights = _weights_of(model)
        entry = 2 * spec.kv_head_count * spec.head_size
        shape = (engine.blocks, engine.block_size, entry)
        self.cache = device.device_buffer("draft_kv", shape, sizes.quantity, stream=setup.compute)
        starts = np.arange(sizes.rows + 1, dtype=np.int32)
        self._row_starts = [
            device.constant("row_starts", starts[: rows + 1]) for rows in range(sizes.rows + 1)
        ]
        self._shape = attention_shape(spec)
        self._passes = [
            DraftPass(column, start, self._shape, engine.block_size, engine.model_len_max)
            for column in range(1, sizes.drafts)
        ]

    def propose(self, view: StepView, sampled: DeviceBuffer, outputs: StepOutputs) -> None:
        shift_inputs(self._setup, view, outputs)
        self._first_pass(view, outputs)
        for draft_pass in self._passes:
            self._next_pass(draft_pass, view, outputs)

    def _first_pass(self, view: StepView, outputs: StepOutputs) -> None:
        inputs, work, shape = self._setup.inputs, self._setup.work, view.shape
        self._setup.kernels.launch_kernel(
            _mtp_first,
            {
                "shifted_ids": reads(work.shifted_ids, shape.tokens),
                "hidden": reads(work.hidden, shape.tokens),
                "last_index": reads(work.last_index, shape.rows),
                "block_table": reads(inputs.block_table.gpu, shape.rows),
                "query_start": reads(inputs.query_start.gpu, shape.rows + 1),
                "seq_lens": reads(work.seq_lens, shape.rows),
                "positions": reads(work.positions, shape.tokens),
                "slot_mapping": reads(work.slot_mapping, shape.tokens),
                **mrope_uses(self._setup.scenario.model, work, shape.tokens),
                "cache": updates(self.cache, mask=shape.blocks, written=shape.written),
                "draft_hidden": writes(work.draft_hidden, shape.rows),
                "drafts": writes(outputs.drafts, shape.rows, own=view.owners),
                **self._drawing(view, outputs, use=writes),
            },
            name="draft",
            step=shape.step,
            constants=self._weights,
            shape=self._shape,
        )

    def _drawing(
        self, view: StepView, outputs: StepOutputs, *, use: Callable[..., Use]
    ) -> dict[str, Use]:
        """Footprint of the draws, if there are any. use: of the weights"""
        inputs, rows = self._setup.inputs, view.shape.rows
        if outputs.draft_weights is None:
            return {}
        return {
            "temperature": reads(inputs.temperature.gpu, rows),
            "seed": reads(inputs.seed.gpu, rows),
            "draft_weights": use(outputs.draft_weights, rows, own=view.owners),
        }

    def _next_pass(self, draft_pass: DraftPass, view: StepView, outputs: StepOutputs) -> None:
        inputs, work, shape = self._setup.inputs, self._setup.work, view.shape
        self._setup.kernels.launch_kernel(
            _mtp_next,
            {
                "last_index": reads(work.last_index, shape.rows),
                "query_start": reads(inputs.query_start.gpu, shape.rows + 1),
                "block_table": reads(inputs.block_table.gpu, shape.rows),
                "positions": reads(work.positions, shape.tokens),
                **mrope_uses(self._setup.scenario.model, work, shape.tokens),
                "cache": updates(self.cache, mask=shape.blocks, written=shape.written),
                "draft_hidden": updates(work.draft_hidden, shape.rows),
                "drafts": updates(outputs.drafts, shape.rows, own=view.owners),
                "draft_positions": writes(work.draft_positions, shape.rows),
                "draft_seq_lens": writes(work.draft_seq_lens, shape.rows),
                "draft_slots": writes(work.draft_slots, shape.rows),
                **self._drawing(view, outputs, use=updates),
            },
            name=f"draft.{draft_pass.column}",
            step=shape.step,
            constants=self._weights | {"row_starts": self._row_starts[shape.rows]},
            this=draft_pass,
        )


def _weights_of(model: Model) -> dict[str, DeviceBuffer]:
    """By what the drafter's kernels call them; parts that the model lacks are left out."""
    named = {name: _FC.get(name, f"draft.{name}") for name in DraftLayerWeights._fields}
    named |= {name: name for name in _SHARED}
    return {name: model.parameters[at] for name, at in named.items() if at in model.parameters}


def _mtp_first(
    kernels: Backend,
    inputs: DraftInputs,
    rows: PagedRows,
    state: DraftState,
    drawing: DraftDrawing,
    weights: DraftLayerWeights,
    *,
    shape: AttentionShape,
) -> None:
    """A pass over all tokens of the step."""
    e = _draft_input(kernels, inputs.shifted_ids, inputs.hidden, weights)
    attention_layer(kernels, Residual(e), state.cache, rows, weights.attention, shape=shape)
    last = e[inside(inputs.last_index, e)]
    state.draft_hidden[...] = last
    logits = logits_of(kernels, last, weights.head)
    if drawing.draft_weights is None:
        state.drafts[:, 0] = kernels.argmax(logits)
        return
    place = rows.positions[inside(inputs.last_index, rows.positions)] + 2
    _draw(kernels, logits, place, state, drawing, column=0)


def _mtp_next(
    kernels: Backend,
    base: DraftBase,
    state: DraftState,
    place: DraftPlace,
    drawing: DraftDrawing,
    weights: DraftLayerWeights,
    *,
    this: DraftPass,
) -> None:
    """A pass over the last draft of each row. Where it stands is left in place."""
    positions, seq_lens, slots = place
    start = this.start(base.positions, base.last_index, base.query_start, base.mrope_positions)
    positions[...] = start + this.column
    fits = positions < this.model_len_max
    seq_lens[...] = (positions + 1) * fits
    kernels.slot_mapping(
        positions, base.row_starts, base.block_table, slots, block_size=this.block_size
    )
    slots[...] = (slots + 1) * fits - 1
    tokens = state.drafts[:, this.column - 1] + 0
    e = _draft_input(kernels, tokens, state.draft_hidden, weights)
    places = base.mrope_positions
    if places is not None:
        # A row that drafts is behind its prompt's last token: all coordinates grow by 1.
        places = places[inside(base.last_index, places)] + this.column
    rows = PagedRows(base.block_table, base.row_starts, seq_lens, positions, slots, places)
    attention_layer(kernels, Residual(e), state.cache, rows, weights.attention, shape=this.shape)
    state.draft_hidden[...] = e
    logits = logits_of(kernels, e, weights.head)
    if drawing.draft_weights is None:
        state.drafts[:, this.column] = kernels.argmax(logits) * fits
        return
    _draw(kernels, logits, (positions + 3) * fits - 1, state, drawing, column=this.column)


def _draw(
    kernels: Backend,
    logits: Array,  # [R, V]
    place: Array,  # [R] int32
    state: DraftState,
    drawing: DraftDrawing,
    *,
    column: int,
) -> None:
    kernels.draw_drafts(
        logits,
        drawing.temperature,
        drawing.seed,
        place,
        state.drafts,
        drawing.draft_weights,
        column=column,
    )


def _draft_input(
    kernels: Backend, tokens: Array, hidden: Array, weights: DraftLayerWeights
) -> Array:
    """fc @ concat(norm(embedding), norm(hidden)), as two products."""
    embedded = kernels.norm(kernels.embedding(tokens, weights.embed), weights.token_norm)
    token_part = kernels.linear(embedded, weights.fc_token)
    before = kernels.norm(hidden, weights.hidden_norm)
    return token_part + kernels.linear(before, weights.fc_hidden)
