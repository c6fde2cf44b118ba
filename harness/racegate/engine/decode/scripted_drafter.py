"""The scripted drafter: true continuations up to a target, if its own inputs are right."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from racegate.device.protocol import DeviceBuffer, reads, updates, writes
from racegate.engine.decode.drafter import Drafter, no_targets, shift_inputs
from racegate.engine.state.buffers import StepOutputs
from racegate.engine.state.plan import PlanEntry
from racegate.engine.state.setup import Setup
from racegate.engine.state.view import StepView
from racegate.scenario.spec import OwnScenario
from racegate_kernels.numerics import DIGEST, GOLDEN, POSITION, mix_eager


class ScriptedDrafter(Drafter):
    """True continuations up to a target, if its inputs (token, position, own cache) are right."""

    cache: DeviceBuffer

    def __init__(self, setup: Setup, *, truth: Mapping[str, tuple[int, ...]]) -> None:
        scenario, device = setup.scenario, setup.device
        engine = scenario.engine
        self._setup = setup
        self._accepts = {request.name: request.accepts for request in scenario.requests}
        self._rounds = dict.fromkeys(self._accepts, 0)
        tokens = token_tables(scenario, truth)
        self._constants = {
            "truth": device.constant("truth", tokens),
            "truth_digest": device.constant("truth_digest", truth_digests(tokens)),
        }
        shape = (engine.blocks, engine.block_size, 1)
        self.cache = device.device_buffer("draft_kv", shape, np.uint32, stream=setup.compute)

    def targets(self, entries: list[PlanEntry]) -> np.ndarray:
        """[R] int32: the next of each request's script; one per step that samples."""
        targets = no_targets(entries)
        for row, entry in enumerate(entries):
            if entry.is_discarded:
                continue
            accepts = self._accepts[entry.request]
            target = accepts[self._rounds[entry.request] % len(accepts)]
            targets[row] = min(target, 1 + self._setup.sizes.drafts)
            self._rounds[entry.request] += 1
        return targets

    def propose(self, view: StepView, sampled: DeviceBuffer, outputs: StepOutputs) -> None:
        shift_inputs(self._setup, view, outputs)
        inputs, work, shape = self._setup.inputs, self._setup.work, view.shape
        self._setup.kernels.launch_kernel(
            "scripted_draft",
            {
                "shifted_ids": reads(work.shifted_ids, shape.tokens),
                "positions": reads(work.positions, shape.tokens),
                "slot_mapping": reads(work.slot_mapping, shape.tokens),
                "last_index": reads(work.last_index, shape.rows),
                "next_token": reads(outputs.next_token, shape.rows),
                "block_table": reads(inputs.block_table.gpu, shape.rows),
                "request_index": reads(inputs.request_index.gpu, shape.rows),
                "accept_target": reads(inputs.accept_target.gpu, shape.rows),
                "cache": updates(self.cache, mask=shape.blocks, written=shape.written),
                "drafts": writes(outputs.drafts, shape.rows, own=view.owners),
            },
            name="draft",
            step=shape.step,
            constants=self._constants,
            vocab_size=self._setup.scenario.model.vocab_size,
        )


def truth_digests(
    tokens: np.ndarray,  # [Q, L] int32
) -> np.ndarray:
    """[Q, L] uint32: the digest of a right drafter cache up to each position."""
    position = np.arange(tokens.shape[1] - 1, dtype=np.uint32)
    behind = tokens[:, 1:].astype(np.uint32)
    entries = mix_eager(behind * np.uint32(GOLDEN) + position * np.uint32(POSITION) + np.uint32(1))
    terms = mix_eager(entries + position * np.uint32(DIGEST))
    digests = np.cumsum(terms, axis=1, dtype=np.uint32)
    return np.concatenate([digests, digests[:, -1:]], axis=1)


def token_tables(scenario: OwnScenario, truth: Mapping[str, tuple[int, ...]]) -> np.ndarray:
    """[Q, L] int32: the true tokens of each request, in scenario order."""
    return np.array([truth[request.name] for request in scenario.requests], np.int32)
