"""The extract-hidden-states drafter (docs/mechanism.md#drafts)."""

from __future__ import annotations

import numpy as np

from racegate.device.protocol import Device, DeviceBuffer, Stream, reads, updates, writes
from racegate.engine.decode.drafter import shift_inputs
from racegate.engine.state.buffers import Inputs, StepOutputs, Work
from racegate.engine.state.plan import PlanEntry
from racegate.engine.state.sizes import Sizes
from racegate.engine.state.view import BatchShape
from racegate.history.trace import Owner
from racegate.scenario.spec import Scenario
from racegate_kernels.backend import Backend
from racegate_kernels.numerics import Array


class ExtractDrafter:
    """Keeps the target hidden states; its one draft is the first token the row sampled."""

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
