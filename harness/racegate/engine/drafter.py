"""Drafters: what proposes the tokens that the next step verifies. DEFINITION section 4; mechanism sections 5.3 to 5.5."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from racegate.device.protocol import Device, DeviceBuffer, Stream, Use, reads, updates, writes
from racegate.engine.buffers import Inputs, Sizes, StepOutputs, Work
from racegate.engine.layers import attention_layer
from racegate.engine.model import BatchShape, Model, token_tables
from racegate.engine.plan import PlanEntry
from racegate.scenario import DrafterKind, Scenario
from racegate.trace import Owner
from racegate_kernels.backend import Backend
from racegate_kernels.numerics import DIGEST, GOLDEN, POSITION, Array, mix_eager


class Drafter(Protocol):
    """cache: the drafter's own cache [B, S, E], or None if it keeps none."""

    cache: DeviceBuffer | None

    def targets(self, entries: list[PlanEntry]) -> np.ndarray:
        """[R] int32: the accepted count each row's drafts aim at (1 where that means nothing)."""
        ...

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
        """Writes outputs.drafts [R, K]."""
        ...


def make_drafter(
    scenario: Scenario,
    device: Device,
    stream: Stream,
    model: Model,
    *,
    sizes: Sizes,
    truth: Mapping[str, tuple[int, ...]],
) -> Drafter:
    match scenario.engine.drafter:
        case DrafterKind.SCRIPTED:
            return ScriptedDrafter(scenario, device, stream, truth=dict(truth))
        case DrafterKind.MTP:
            return MtpDrafter(scenario, device, stream, model, sizes=sizes)
        case DrafterKind.EXTRACT_HIDDEN_STATES:
            return ExtractDrafter(scenario, device, stream, sizes=sizes)
        case DrafterKind.NONE:
            return NoDrafter()


class NoDrafter:
    """Proposes nothing (draft_len_max 0)."""

    cache = None

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
        pass


def shift_inputs(
    device: Device,
    stream: Stream,
    shape: BatchShape,
    inputs: Inputs,
    work: Work,
    outputs: StepOutputs,
) -> None:
    """Ids shifted left by one, and each row's last input that stays."""
    device.launch(
        stream,
        lambda k, *arrays: k.draft_inputs(*arrays),
        "draft_inputs",
        step=shape.step,
        uses=(
            reads(inputs.input_ids.gpu, shape.tokens),
            reads(inputs.query_start.gpu, shape.rows + 1),
            reads(inputs.draft_lens.gpu, shape.rows),
            reads(outputs.valid_count, shape.rows),
            reads(outputs.next_token, shape.rows),
            writes(work.shifted_ids, shape.tokens),
            writes(work.last_index, shape.rows),
        ),
    )


class ScriptedDrafter:
    """True continuations up to a target, if its inputs (token, position, own cache) are right."""

    def __init__(
        self,
        scenario: Scenario,
        device: Device,
        stream: Stream,
        *,
        truth: dict[str, tuple[int, ...]],
    ) -> None:
        engine = scenario.engine
        self._device = device
        self._stream = stream
        self._vocab_size = scenario.model.vocab_size
        self._k = engine.draft_len_max
        self._accepts = {request.name: request.accepts for request in scenario.requests}
        self._rounds = dict.fromkeys(self._accepts, 0)
        tokens = token_tables(scenario, truth)
        self._truth = device.constant("truth", tokens)
        self._digest = device.constant("truth_digest", truth_digests(tokens))
        shape = (engine.blocks, engine.block_size, 1)
        self.cache = device.device_buffer("draft_kv", shape, np.uint32, stream=stream)

    def targets(self, entries: list[PlanEntry]) -> np.ndarray:
        targets = np.ones(len(entries), np.int32)
        for row, entry in enumerate(entries):
            if entry.is_discarded:
                continue
            accepts = self._accepts[entry.request]
            target = accepts[self._rounds[entry.request] % len(accepts)]
            targets[row] = min(target, 1 + self._k)
            self._rounds[entry.request] += 1
        return targets

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
        self._device.launch(
            self._stream,
            _scripted,
            "draft",
            step=shape.step,
            uses=(
                reads(work.shifted_ids, shape.tokens),
                reads(work.positions, shape.tokens),
                reads(work.slot_mapping, shape.tokens),
                reads(work.last_index, shape.rows),
                reads(outputs.next_token, shape.rows),
                reads(inputs.block_table.gpu, shape.rows),
                reads(inputs.request_index.gpu, shape.rows),
                reads(inputs.accept_target.gpu, shape.rows),
                updates(self.cache, mask=shape.blocks),
                writes(outputs.drafts, shape.rows, own=owners),
            ),
            constants=(self._truth, self._digest),
            vocab_size=self._vocab_size,
        )


def _scripted(
    k: Backend,
    shifted_ids: Array,
    positions: Array,
    slot_mapping: Array,
    last_index: Array,
    next_token: Array,
    block_table: Array,
    request_index: Array,
    accept_target: Array,
    cache: Array,
    drafts: Array,
    truth: Array,
    truth_digest: Array,
    *,
    vocab_size: int,
) -> None:
    k.scripted_draft(
        shifted_ids,
        positions,
        slot_mapping,
        last_index,
        next_token,
        block_table,
        request_index,
        accept_target,
        truth,
        truth_digest,
        cache,
        drafts,
        vocab_size=vocab_size,
    )


def truth_digests(tokens: np.ndarray) -> np.ndarray:
    """[Q, L] uint32: the digest of a right drafter cache up to each position; the last one repeats."""
    position = np.arange(tokens.shape[1] - 1, dtype=np.uint32)
    behind = tokens[:, 1:].astype(np.uint32)
    entries = mix_eager(behind * np.uint32(GOLDEN) + position * np.uint32(POSITION) + np.uint32(1))
    terms = mix_eager(entries + position * np.uint32(DIGEST))
    digests = np.cumsum(terms, axis=1, dtype=np.uint32)
    return np.concatenate([digests, digests[:, -1:]], axis=1)


class ExtractDrafter:
    """Keeps the target hidden states; its one draft is the first token the row sampled (mechanism 5.5)."""

    def __init__(self, scenario: Scenario, device: Device, stream: Stream, *, sizes: Sizes) -> None:
        engine = scenario.engine
        self._device = device
        self._stream = stream
        width = sizes.hidden + 1
        self._entries = device.device_buffer(
            "draft_entries_gpu", (sizes.tokens, width), sizes.quantity, stream=stream
        )
        shape = (engine.blocks, engine.block_size, width)
        self.cache = device.device_buffer("draft_kv", shape, sizes.quantity, stream=stream)

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
        self._device.launch(
            self._stream,
            _extract,
            "draft",
            step=shape.step,
            uses=(
                reads(work.shifted_ids, shape.tokens),
                reads(work.slot_mapping, shape.tokens),
                reads(work.hidden, shape.tokens),
                reads(sampled, shape.rows),
                writes(self._entries, shape.tokens),
                updates(self.cache, mask=shape.blocks),
                writes(outputs.drafts, shape.rows, own=owners),
            ),
        )


def _extract(
    k: Backend,
    shifted_ids: Array,  # [T] int32
    slot_mapping: Array,  # [T] int32
    hidden: Array,  # [T, D]
    sampled: Array,  # [R, 2] int32
    entries: Array,  # [T, D + 1], written
    cache: Array,  # [B, S, D + 1], written
    drafts: Array,  # [R, 1] int32, written
) -> None:
    entries[:, :-1] = hidden
    entries[:, -1] = shifted_ids
    k.cache_write(entries, slot_mapping, cache)
    drafts[:, 0] = sampled[:, 0]


_DRAFT_LAYER = ("draft.qkv_proj", "draft.out_proj")


class MtpDrafter:
    """A real layer with its own cache: one pass over the step's tokens, then K - 1 single-token passes."""

    def __init__(
        self,
        scenario: Scenario,
        device: Device,
        stream: Stream,
        model: Model,
        *,
        sizes: Sizes,
    ) -> None:
        engine, spec = scenario.engine, scenario.model
        self._engine = engine
        self._device = device
        self._stream = stream
        self._heads = spec.heads
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
    last = e[last_index]
    draft_hidden[...] = last
    drafts[:, 0] = k.argmax(k.linear(k.norm(last), lm_head))


def _mtp_next(
    k: Backend,
    last_index: Array,  # [R] int32
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
    index: int,
    block_size: int,
    model_len_max: int,
) -> None:
    draft_positions[...] = positions[last_index] + index
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
