"""The scripted drafter: true continuations up to a target, if its own inputs are right."""

from __future__ import annotations

import numpy as np

from racegate.device.protocol import Device, DeviceBuffer, Stream, reads, updates, writes
from racegate.engine.decode.drafter import shift_inputs
from racegate.engine.state.buffers import Inputs, StepOutputs, Work
from racegate.engine.state.plan import PlanEntry
from racegate.engine.state.view import BatchShape
from racegate.history.trace import Owner
from racegate.scenario.spec import Scenario
from racegate_kernels.backend import Backend
from racegate_kernels.numerics import DIGEST, GOLDEN, POSITION, Array, mix_eager


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
    """[Q, L] uint32: the digest of a right drafter cache up to each position."""
    position = np.arange(tokens.shape[1] - 1, dtype=np.uint32)
    behind = tokens[:, 1:].astype(np.uint32)
    entries = mix_eager(behind * np.uint32(GOLDEN) + position * np.uint32(POSITION) + np.uint32(1))
    terms = mix_eager(entries + position * np.uint32(DIGEST))
    digests = np.cumsum(terms, axis=1, dtype=np.uint32)
    return np.concatenate([digests, digests[:, -1:]], axis=1)


def token_tables(scenario: Scenario, truth: dict[str, tuple[int, ...]]) -> np.ndarray:
    """[Q, L] int32: the true tokens of each request, in scenario order."""
    return np.array([truth[request.name] for request in scenario.requests], np.int32)
