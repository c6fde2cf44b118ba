"""Cache mode all: every block of a prefix keeps its state, and the state of each token is written
where its block says (docs/mechanism.md#every-block).

Nothing moves and nothing waits for counts: the device lays a step's blocks out from its own counts.
From the host it needs the *anchor*, the first running column of the last step, which only exact
counts tell. The host has them one step late, when it remembers the anchor, and that is early
enough.
"""

from __future__ import annotations

import numpy as np

from racegate.device.protocol import DeviceBuffer, reads, writes
from racegate.engine.cache.align_cache import Columns, Moves
from racegate.engine.model.model import Model
from racegate.engine.state.buffers import Twin
from racegate.engine.state.setup import Setup
from racegate.engine.state.view import StepView


class AllCache(Columns):
    """Columns whose states stay where they were written."""

    def __init__(self, setup: Setup, model: Model) -> None:
        super().__init__(setup)
        self._interval = setup.scenario.engine.state_interval

    @property
    def window_table(self) -> Twin:
        """Written on the device, but for idle steps. gpu: [R, 1 + N] int32"""
        return self._setup.inputs.window_table

    @property
    def anchor(self) -> DeviceBuffer:
        """[R] int32, the anchor of each row's last step."""
        return self._setup.inputs.anchor.gpu

    def stage(self, view: StepView, moves: Moves) -> None:
        """Host side: the anchor of each row's last step, -1 if there was none."""
        anchors = np.array([state.column for state in view.states], np.int32)
        self._setup.put(self._setup.inputs.anchor, anchors, step=view.shape.step)

    def move(self, view: StepView, moves: Moves) -> None:
        """Before the step: which block each token's state gets, and which one a row starts from."""
        inputs, work, rows = self._setup.inputs, self._setup.work, view.shape.rows
        self._setup.kernels.launch_kernel(
            "token_blocks",
            {
                "computed": reads(work.computed, rows),
                "query_start": reads(inputs.query_start.gpu, rows + 1),
                "accepted": reads(work.accepted, rows),
                "anchor": reads(self.anchor, rows),
                "is_decode": reads(inputs.is_decode.gpu, rows),
                "state_table": reads(inputs.state_table.gpu, rows),
                "window_table": writes(inputs.window_table.gpu, rows),
            },
            step=view.shape.step,
            interval=self._interval,
        )

    def keep_boundaries(self, view: StepView) -> DeviceBuffer:
        """[R] int32, the counts as they are: every state is where it belongs. By now the host's
        counts of the step's beginning are exact.
        """
        for tokens, state in zip(view.tokens.tolist(), view.states, strict=True):
            before, state.column = state.column, (state.computed + tokens) // self._interval
            self._setup.counters.add("migrations", 0 <= before != state.column)
        return self._setup.work.accepted
