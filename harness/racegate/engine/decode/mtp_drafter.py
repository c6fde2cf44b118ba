"""The MTP drafter: a real draft layer with its own cache. DEFINITION section 4."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from racegate.device.protocol import Device, DeviceBuffer, Stream, Use, reads, updates, writes
from racegate.engine.decode.drafter import shift_inputs
from racegate.engine.model.layers import attention_layer, inside
from racegate.engine.model.model import Model
from racegate.engine.state.buffers import Inputs, StepOutputs, Work
from racegate.engine.state.plan import PlanEntry
from racegate.engine.state.sizes import Sizes
from racegate.engine.state.view import BatchShape
from racegate.history.trace import Owner
from racegate.scenario.spec import Scenario
from racegate_kernels.backend import Backend
from racegate_kernels.numerics import Array

_DRAFT_LAYER = ("draft.qkv_proj", "draft.out_proj")


class MtpDrafter:
    """A real layer with its own cache: one pass over the step's tokens, then K - 1 single-token
    passes.
    """

    def __init__(
        self,
        scenario: Scenario,
        device: Device,
        stream: Stream,
        model: Model,
        *,
        sizes: Sizes,
        start: Callable[[Array, Array, Array], Array],
    ) -> None:
        engine, spec = scenario.engine, scenario.model
        self._engine = engine
        self._device = device
        self._stream = stream
        self._heads = spec.heads
        self._start = start
        names = ("embed", "draft.fc.token", "draft.fc.hidden", *_DRAFT_LAYER, "lm_head")
        self._parameters = tuple(model.parameters[name] for name in names)
        inner = spec.heads * spec.head_size
        shape = (engine.blocks, engine.block_size, 2 * inner)
        self.cache = device.device_buffer("draft_kv", shape, sizes.quantity, stream=stream)
        starts = np.arange(sizes.rows + 1, dtype=np.int32)
        self._row_starts = [
            device.constant("row_starts", starts[: rows + 1]) for rows in range(sizes.rows + 1)
        ]

    def targets(self, entries: list[PlanEntry]) -> np.ndarray:
        return np.ones(len(entries), np.int32)

    def propose(
        self,
        shape: BatchShape,
        inputs: Inputs,
        work: Work,
        sampled: DeviceBuffer,
        outputs: StepOutputs,
        *,
        owners: tuple[Owner, ...],
    ) -> None:
        shift_inputs(self._device, self._stream, shape, inputs, work, outputs)
        self._first_pass(shape, inputs, work, outputs, owners=owners)
        for index in range(1, self._engine.draft_len_max):
            self._next_pass(index, shape, inputs, work, outputs, owners=owners)

    def _first_pass(
        self,
        shape: BatchShape,
        inputs: Inputs,
        work: Work,
        outputs: StepOutputs,
        *,
        owners: tuple[Owner, ...],
    ) -> None:
        uses: tuple[Use, ...] = (
            reads(work.shifted_ids, shape.tokens),
            reads(work.hidden, shape.tokens),
            reads(work.last_index, shape.rows),
            reads(inputs.block_table.gpu, shape.rows),
            reads(inputs.query_start.gpu, shape.rows + 1),
            reads(work.seq_lens, shape.rows),
            reads(work.positions, shape.tokens),
            reads(work.slot_mapping, shape.tokens),
            updates(self.cache, mask=shape.blocks),
            writes(work.draft_hidden, shape.rows),
            writes(outputs.drafts, shape.rows, own=owners),
        )
        self._device.launch(
            self._stream,
            _mtp_first,
            "draft",
            step=shape.step,
            uses=uses,
            constants=self._parameters,
            heads=self._heads,
        )

    def _next_pass(
        self,
        index: int,
        shape: BatchShape,
        inputs: Inputs,
        work: Work,
        outputs: StepOutputs,
        *,
        owners: tuple[Owner, ...],
    ) -> None:
        uses: tuple[Use, ...] = (
            reads(work.last_index, shape.rows),
            reads(inputs.query_start.gpu, shape.rows + 1),
            reads(inputs.block_table.gpu, shape.rows),
            reads(work.positions, shape.tokens),
            updates(self.cache, mask=shape.blocks),
            updates(work.draft_hidden, shape.rows),
            updates(outputs.drafts, shape.rows, own=owners),
            writes(work.draft_positions, shape.rows),
            writes(work.draft_seq_lens, shape.rows),
            writes(work.draft_slots, shape.rows),
        )
        self._device.launch(
            self._stream,
            _mtp_next,
            f"draft.{index}",
            step=shape.step,
            uses=uses,
            constants=(*self._parameters, self._row_starts[shape.rows]),
            heads=self._heads,
            start=self._start,
            index=index,
            block_size=self._engine.block_size,
            model_len_max=self._engine.model_len_max,
        )


def _mtp_first(
    k: Backend,
    shifted_ids: Array,  # [T] int32
    hidden: Array,  # [T, D], target hidden states
    last_index: Array,  # [R] int32
    block_table: Array,  # [R, M] int32
    query_start: Array,  # [R + 1] int32
    seq_lens: Array,  # [R] int32
    positions: Array,  # [T] int32
    slot_mapping: Array,  # [T] int32
    cache: Array,  # [B, S, 2HP], read and written
    draft_hidden: Array,  # [R, D], written
    drafts: Array,  # [R, K] int32, column 0 written
    embed: Array,
    fc_token: Array,
    fc_hidden: Array,
    qkv_proj: Array,
    out_proj: Array,
    lm_head: Array,
    *,
    heads: int,
) -> None:
    e = _draft_input(k, shifted_ids, hidden, embed, fc_token, fc_hidden)
    place = (block_table, query_start, seq_lens, positions, slot_mapping)
    attention_layer(k, e, cache, *place, qkv_proj, out_proj, heads=heads)
    last = e[inside(last_index, e)]
    draft_hidden[...] = last
    drafts[:, 0] = k.argmax(k.linear(k.norm(last), lm_head))


def _mtp_next(
    k: Backend,
    last_index: Array,  # [R] int32
    query_start: Array,  # [R + 1] int32
    block_table: Array,  # [R, M] int32
    positions: Array,  # [T] int32
    cache: Array,  # [B, S, 2HP], read and written
    draft_hidden: Array,  # [R, D], read and written
    drafts: Array,  # [R, K] int32, column index - 1 read, column index written
    draft_positions: Array,  # [R] int32, written
    draft_seq_lens: Array,  # [R] int32, written
    draft_slots: Array,  # [R] int32, written
    embed: Array,
    fc_token: Array,
    fc_hidden: Array,
    qkv_proj: Array,
    out_proj: Array,
    lm_head: Array,
    row_starts: Array,  # [R + 1] int32, one token per row
    *,
    heads: int,
    start: Callable[[Array, Array, Array], Array],
    index: int,
    block_size: int,
    model_len_max: int,
) -> None:
    draft_positions[...] = start(positions, last_index, query_start) + index
    fits = draft_positions < model_len_max
    draft_seq_lens[...] = (draft_positions + 1) * fits
    k.slot_mapping(draft_positions, row_starts, block_table, draft_slots, block_size=block_size)
    draft_slots[...] = (draft_slots + 1) * fits - 1
    e = _draft_input(k, drafts[:, index - 1] + 0, draft_hidden, embed, fc_token, fc_hidden)
    place = (block_table, row_starts, draft_seq_lens, draft_positions, draft_slots)
    attention_layer(k, e, cache, *place, qkv_proj, out_proj, heads=heads)
    draft_hidden[...] = e
    drafts[:, index] = k.argmax(k.linear(k.norm(e), lm_head)) * fits


def _draft_input(
    k: Backend, tokens: Array, hidden: Array, embed: Array, fc_token: Array, fc_hidden: Array
) -> Array:
    """fc @ concat(norm(embedding), norm(hidden)), as two products."""
    token_part = k.linear(k.norm(k.embedding(tokens, embed)), fc_token)
    return token_part + k.linear(k.norm(hidden), fc_hidden)
