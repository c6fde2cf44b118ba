"""The n-gram drafter: what followed the last token before, or nothing. DEFINITION section 4."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from racegate.device.protocol import DeviceBuffer, reads, updates, writes
from racegate.engine.decode.drafter import Drafter, shift_inputs
from racegate.engine.state.buffers import StepOutputs
from racegate.engine.state.setup import Setup
from racegate.engine.state.view import StepView
from racegate_kernels.backend import Backend
from racegate_kernels.numerics import Array


class NgramDrafter(Drafter):
    """Keeps the tokens, a row's in the blocks of its attention; a missing draft is -1."""

    cache: DeviceBuffer

    def __init__(self, setup: Setup) -> None:
        engine = setup.scenario.engine
        shape = (engine.blocks, engine.block_size, 1)
        self._setup = setup
        self.cache = setup.device.device_buffer("draft_kv", shape, np.int32, stream=setup.compute)

    def propose(self, view: StepView, sampled: DeviceBuffer, outputs: StepOutputs) -> None:
        shift_inputs(self._setup, view, outputs)
        inputs, work, shape = self._setup.inputs, self._setup.work, view.shape
        self._setup.kernels.launch_kernel(
            _ngram,
            {
                "shifted_ids": reads(work.shifted_ids, shape.tokens),
                "slot_mapping": reads(work.slot_mapping, shape.tokens),
                "positions": reads(work.positions, shape.tokens),
                "last_index": reads(work.last_index, shape.rows),
                "block_table": reads(inputs.block_table.gpu, shape.rows),
                "cache": updates(self.cache, mask=shape.blocks, written=shape.written),
                "drafts": writes(outputs.drafts, shape.rows, own=view.owners),
            },
            name="draft",
            step=shape.step,
        )


class LastTokens(NamedTuple):
    """Where each row's last token stands."""

    positions: Array  # [T] int32
    last_index: Array  # [R] int32
    block_table: Array  # [R, M] int32


def _ngram(
    kernels: Backend,
    shifted_ids: Array,  # [T] int32
    slot_mapping: Array,  # [T] int32
    last: LastTokens,
    cache: Array,  # [B, S, 1] int32, read and written
    drafts: Array,  # [R, K] int32, written
) -> None:
    kernels.cache_write(shifted_ids[:, None], slot_mapping, cache)
    kernels.ngram_draft(*last, cache, drafts)
