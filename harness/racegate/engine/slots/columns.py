"""Cache modes with columns, in slots: the device decides itself where running states go, so that
nothing waits for counts (docs/mechanism.md#slots).
"""

from __future__ import annotations

import numpy as np

from racegate.device.protocol import DeviceBuffer, reads, updates, writes
from racegate.engine.cache.align_cache import AlignCache, Moves
from racegate.engine.model.model import Model
from racegate.engine.slots.memory import SlotMemory
from racegate.engine.state.setup import Setup
from racegate.engine.state.view import BatchShape, StepView


class SlotColumns(AlignCache):
    """The state migrations of align mode, from counts that only the device has."""

    needs_counts = False

    def __init__(self, setup: Setup, model: Model, memory: SlotMemory) -> None:
        super().__init__(setup, model)
        self._memory = memory
        rows, stream = (setup.sizes.rows,), setup.compute
        self._before = setup.device.device_buffer("before_gpu", rows, np.int32, stream=stream)
        self._column = setup.device.device_buffer("column_gpu", rows, np.int32, stream=stream)

    @property
    def tables(self) -> tuple[DeviceBuffer, DeviceBuffer]:
        """[R] int32, columns; [R, C] int32: nothing rewrites them before the next step."""
        return self._column, self._setup.inputs.state_table.gpu

    def decide(self, view: StepView, accepted_host: np.ndarray) -> Moves:
        """The host decides nothing. accepted_host: [R] int32"""
        return self._nothing

    def stage(self, view: StepView, moves: Moves) -> None:
        """How many tokens there are of each row, for the copies behind the forward pass."""
        self._setup.put(self._setup.inputs.scheduled, view.tokens, step=view.shape.step)

    def guard(self, step: int) -> None:
        """What is read behind the forward pass stands in the pool."""

    def move(self, view: StepView, moves: Moves) -> None:
        """Before the step: the running states go to their new columns, if they do."""
        self._memory.gather(view, "column", self._before, expect=True)
        self.migrate(view)
        self._memory.keep(view, self._memory.tables.column, self._column, name="column")

    def migrate(self, view: StepView) -> None:
        """Plans once, before any state is copied: the plan resets the counts of rows that move."""
        self.plan(view)
        self.copy_states("migrate", view.shape, self.layers, self.chosen(view.shape))

    def plan(self, view: StepView) -> None:
        """Where each row's running state goes."""
        inputs, work, rows = self._setup.inputs, self._setup.work, view.shape.rows
        self._setup.kernels.launch_kernel(
            "column_plan",
            {
                "computed": reads(work.computed, rows),
                "query_start": reads(inputs.query_start.gpu, rows + 1),
                "before": reads(self._before, rows),
                "state_table": reads(inputs.state_table.gpu, rows),
                "accepted": updates(work.accepted, rows),
                "column": writes(self._column, rows),
                "window_table": writes(inputs.window_table.gpu, rows),
                "source": writes(work.copy_source, rows),
                "window_source": writes(work.copy_window, rows),
                "target": writes(work.copy_target, rows),
                "offset": writes(work.copy_offset, rows),
            },
            step=view.shape.step,
            interval=self._interval,
        )

    def send_tables(self, shape: BatchShape) -> None:
        """They are there."""
