"""Cache mode all in slots: the device works anchors out itself and keeps them where their request
stands, so that no count goes to the host (docs/mechanism.md#every-block).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from racegate.device.masks import mask_of
from racegate.device.protocol import DeviceBuffer, reads, writes
from racegate.engine.cache.align_cache import Moves
from racegate.engine.cache.all_cache import AllCache
from racegate.engine.model.model import Model
from racegate.engine.slots.memory import SlotMemory
from racegate.engine.state.setup import Setup
from racegate.engine.state.view import StepView
from racegate_kernels.backend import Backend
from racegate_kernels.numerics import Array


def _keep_anchor(
    kernels: Backend,
    slot_of: Array,  # [R] int32, the slot of each row
    computed: Array,  # [R] int32, before the step
    query_start: Array,  # [R + 1] int32
    slot_column: Array,  # [S] int32, written
    *,
    interval: int,
) -> None:
    """The first block that each row does not fill, drafts included, goes to its slot."""
    anchor = (computed + query_start[1:] - query_start[:-1]) // interval
    kernels.scatter_rows(slot_column, slot_of, anchor)


class SlotAnchors(AllCache):
    """An anchor is worked out in the step that it is of, and taken from the slot in the next."""

    def __init__(self, setup: Setup, model: Model, memory: SlotMemory) -> None:
        super().__init__(setup, model)
        self._memory = memory
        self._last = setup.device.device_buffer(
            "anchor_gpu", (setup.sizes.rows,), np.int32, stream=setup.compute
        )

    @property
    def anchor(self) -> DeviceBuffer:
        """[R] int32, as the rows' slots have it."""
        return self._last

    def stage(self, view: StepView, moves: Moves) -> None:
        """The host knows no anchor."""

    def move(self, view: StepView, moves: Moves) -> None:
        """Before the step: where states go, from the last anchors; then the new ones are kept."""
        self._memory.gather(view, "column", self._last, expect=True)
        super().move(view, moves)
        self.keep_anchors(view)

    def keep_anchors(self, view: StepView) -> None:
        """Those of the step, where its requests stand."""
        self.keep_in(view, self._memory.slots, self._memory.slot_of.gpu)

    def keep_in(self, view: StepView, slots: Sequence[int], slot_of: DeviceBuffer) -> None:
        """Each row's anchor goes to a slot. slot_of: [R] int32, the same on the device"""
        rows = view.shape.rows
        by_slot = sorted(zip(slots, view.owners, strict=True))
        own = tuple(owner for _, owner in by_slot)
        self._setup.kernels.launch_kernel(
            _keep_anchor,
            {
                "slot_of": reads(slot_of, rows),
                "computed": reads(self._setup.work.computed, rows),
                "query_start": reads(self._setup.inputs.query_start.gpu, rows + 1),
                "slot_column": writes(self._memory.tables.column, mask=mask_of(slots), own=own),
            },
            name="keep_anchor",
            step=view.shape.step,
            interval=self._interval,
        )

    def keep_boundaries(self, view: StepView) -> DeviceBuffer:
        """[R] int32, the counts as they are: every state is where it belongs."""
        return self._setup.work.accepted
