"""The extract-hidden-states drafter (docs/mechanism.md#drafts)."""

from __future__ import annotations

from typing import NamedTuple

from racegate.device.protocol import DeviceBuffer, reads, updates, writes
from racegate.engine.decode.drafter import Drafter, shift_inputs
from racegate.engine.state.buffers import StepOutputs
from racegate.engine.state.setup import Setup
from racegate.engine.state.view import StepView
from racegate_kernels.backend import Backend
from racegate_kernels.numerics import Array


class ExtractDrafter(Drafter):
    """Keeps the target hidden states; its one draft is the first token the row sampled."""

    cache: DeviceBuffer

    def __init__(self, setup: Setup) -> None:
        engine, sizes, device = setup.scenario.engine, setup.sizes, setup.device
        self._setup = setup
        width, stream = sizes.hidden + 1, setup.compute
        self._entries = device.device_buffer(
            "draft_entries_gpu", (sizes.tokens, width), sizes.quantity, stream=stream
        )
        shape = (engine.blocks, engine.block_size, width)
        self.cache = device.device_buffer("draft_kv", shape, sizes.quantity, stream=stream)

    def propose(self, view: StepView, sampled: DeviceBuffer, outputs: StepOutputs) -> None:
        shift_inputs(self._setup, view, outputs)
        work, shape = self._setup.work, view.shape
        self._setup.kernels.launch_kernel(
            _extract,
            {
                "shifted_ids": reads(work.shifted_ids, shape.tokens),
                "slot_mapping": reads(work.slot_mapping, shape.tokens),
                "hidden": reads(work.hidden, shape.tokens),
                "sampled": reads(sampled, shape.rows),
                "entries": writes(self._entries, shape.tokens),
                "cache": updates(self.cache, mask=shape.blocks, written=shape.written),
                "drafts": writes(outputs.drafts, shape.rows, own=view.owners),
            },
            name="draft",
            step=shape.step,
        )


class Extracted(NamedTuple):
    """What a step leaves to be kept."""

    shifted_ids: Array  # [T] int32
    hidden: Array  # [T, D]
    sampled: Array  # [R, 2] int32


def _extract(
    kernels: Backend,
    extracted: Extracted,
    slot_mapping: Array,  # [T] int32
    entries: Array,  # [T, D + 1], written
    cache: Array,  # [B, S, D + 1], written
    drafts: Array,  # [R, 1] int32, written
) -> None:
    entries[:, :-1] = extracted.hidden
    entries[:, -1] = extracted.shifted_ids
    kernels.cache_write(entries, slot_mapping, cache)
    drafts[:, 0] = extracted.sampled[:, 0]
