"""Cache modes with columns: running states move between them, and states at boundaries are kept
(docs/mechanism.md#columns).

The host decides the move before a step, from exact counts; the device keeps the state at a boundary
that the accepted tokens crossed, after the step. The previous step's counts are therefore awaited
here: align is not zero-bubble.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from racegate.device.protocol import DeviceBuffer, Use, reads, updates, writes
from racegate.engine.model.model import Model
from racegate.engine.state import edges
from racegate.engine.state.blocks import NULL_BLOCK
from racegate.engine.state.buffers import Twin
from racegate.engine.state.setup import Setup
from racegate.engine.state.sizes import ceil_div
from racegate.engine.state.view import BatchShape, StepView


class Moves:
    """What the host decided for a step, by row. [R] int32 each, 0 where nothing moves; window [R, 1
    + K].
    """

    __slots__ = ("column", "offset", "source", "target", "window", "window_source")

    def __init__(self, rows: int, width: int) -> None:
        self.column = np.zeros(rows, np.int32)
        self.source = np.zeros(rows, np.int32)
        self.window_source = np.zeros(rows, np.int32)
        self.target = np.zeros(rows, np.int32)
        self.offset = np.zeros(rows, np.int32)
        self.window = np.zeros((rows, width), np.int32)


class Columns:
    """Where a request's states stand in its table, and who moves them: a request has one window of
    1 + K columns, and its states stay in it.

    needs_counts: whether the host has to know a step's counts before it prepares the next one
    """

    needs_counts = False

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._nothing = Moves(0, 0)

    @property
    def window_table(self) -> Twin:
        """The blocks of each row's running state window. gpu: [R, 1 + K] int32 at least"""
        return self._setup.inputs.state_table

    def guard(self, step: int) -> None:
        """The host may move and rewrite rows again."""

    def decide(self, view: StepView, accepted_host: np.ndarray) -> Moves:
        """Where each row's running state goes. accepted_host [R] int32 becomes 1 where it moves."""
        return self._nothing

    def stage(self, view: StepView, moves: Moves) -> None:
        """Host side: windows, and where running states go."""

    def move(self, view: StepView, moves: Moves) -> None:
        """Before the step: the running states go to their new columns."""

    def keep_boundaries(self, view: StepView) -> DeviceBuffer:
        """After the step: keeps the states at crossed boundaries. Returns [R] int32, the counts
        with which the next step finds its states.
        """
        return self._setup.work.accepted


class AlignCache(Columns):
    """The state migrations of align mode."""

    needs_counts = True

    def __init__(self, setup: Setup, model: Model) -> None:
        super().__init__(setup)
        self._interval = setup.scenario.engine.state_interval
        self._width = 1 + setup.sizes.drafts
        self._conv_width = setup.scenario.model.conv_width
        self._model = model
        self._sent = setup.device.event("postprocessed")

    @property
    def window_table(self) -> Twin:
        """A table of windows, beside that of all columns."""
        return self._setup.inputs.window_table

    def decide(self, view: StepView, accepted_host: np.ndarray) -> Moves:
        moves = Moves(len(view.entries), self._width)
        for row, (entry, state) in enumerate(zip(view.entries, view.states, strict=True)):
            table = entry.state_blocks
            before = state.column
            if before < 0 and state.computed > 0:
                before = (state.computed - 1) // self._interval
            column = ceil_div(state.computed + entry.tokens, self._interval) - 1
            window = table[column : column + self._width]
            moves.window[row, : len(window)] = window
            moves.column[row] = column
            if 0 <= before != column:
                offset = int(accepted_host[row]) - 1
                live = before + offset
                moves.source[row] = table[live] if 0 <= live < len(table) else NULL_BLOCK
                moves.window_source[row] = table[before]
                moves.target[row] = table[column]
                moves.offset[row] = offset
                accepted_host[row] = 1
                self._setup.counters.add("migrations")
            state.column = column
        return moves

    def stage(self, view: StepView, moves: Moves) -> None:
        setup, inputs, step = self._setup, self._setup.inputs, view.shape.step
        setup.put(inputs.window_table, moves.window, step=step)
        # These two follow the forward pass.
        inputs.scheduled.cpu.write(view.tokens)
        inputs.column.cpu.write(moves.column)
        setup.put(inputs.migrate_source, moves.source, step=step)
        setup.put(inputs.migrate_window, moves.window_source, step=step)
        setup.put(inputs.migrate_target, moves.target, step=step)
        setup.put(inputs.migrate_offset, moves.offset, step=step)

    def move(self, view: StepView, moves: Moves) -> None:
        if not moves.target.any():
            return
        inputs, rows = self._setup.inputs, view.shape.rows
        places = {
            "source": reads(inputs.migrate_source.gpu, rows),
            "window_source": reads(inputs.migrate_window.gpu, rows),
            "target": reads(inputs.migrate_target.gpu, rows),
            "offset": reads(inputs.migrate_offset.gpu, rows),
        }
        self.copy_states("migrate", view.shape, self.layers, places)

    def guard(self, step: int) -> None:
        self._setup.device.wait_host(self._sent, edges.POSTPROCESS_GUARD, step=step)

    def keep_boundaries(self, view: StepView) -> DeviceBuffer:
        """After the step: states at crossed boundaries are copied to the columns they complete."""
        self.send_tables(view.shape)
        self.keep_states(view)
        return self._setup.work.accepted_out

    def send_tables(self, shape: BatchShape) -> None:
        """What decides about the step's states follows it, from the host's tables."""
        setup, inputs = self._setup, self._setup.inputs
        for target, source in (
            (setup.work.boundary_table, inputs.state_table.cpu),
            (inputs.scheduled.gpu, inputs.scheduled.cpu),
            (inputs.column.gpu, inputs.column.cpu),
        ):
            setup.device.upload(setup.compute, target, source, step=shape.step, rows=shape.rows)
        setup.device.record(setup.compute, self._sent)

    def keep_states(self, view: StepView) -> None:
        """Chooses the states to keep once, and copies those of all layers."""
        work = self._setup.work
        self.choose(view, work.accepted)
        self.copy(view.shape, self.layers)

    @property
    def layers(self) -> tuple[int, ...]:
        """The recurrent layers."""
        return tuple(self._model.states)

    @property
    def tables(self) -> tuple[DeviceBuffer, DeviceBuffer]:
        """[R] int32, the first column of each row's running window; [R, C] int32, its blocks. Both
        as they are behind the forward pass.
        """
        return self._setup.inputs.column.gpu, self._setup.work.boundary_table

    def choose(self, view: StepView, accepted: DeviceBuffer) -> None:
        """Which states to keep. accepted: [R] int32, the step's counts."""
        inputs, work, rows = self._setup.inputs, self._setup.work, view.shape.rows
        column, state_table = self.tables
        self._setup.kernels.launch_kernel(
            "boundary_plan",
            {
                "accepted": reads(accepted, rows),
                "computed": reads(work.computed, rows),
                "scheduled": reads(inputs.scheduled.gpu, rows),
                "draft_lens": reads(inputs.draft_lens.gpu, rows),
                "is_decode": reads(inputs.is_decode.gpu, rows),
                "column": reads(column, rows),
                "state_table": reads(state_table, rows),
                "state_source": writes(work.copy_source, rows),
                "window_source": writes(work.copy_window, rows),
                "target": writes(work.copy_target, rows),
                "offset": writes(work.copy_offset, rows),
                "accepted_out": writes(work.accepted_out, rows, own=view.owners),
            },
            step=view.shape.step,
            interval=self._interval,
        )

    def copy(self, shape: BatchShape, layers: Sequence[int]) -> None:
        """Copies some layers' states and windows, as chosen."""
        self.copy_states("keep_boundary", shape, layers, self.chosen(shape))

    def chosen(self, shape: BatchShape) -> dict[str, Use]:
        """What the device chose to copy, by row."""
        work, rows = self._setup.work, shape.rows
        return {
            "source": reads(work.copy_source, rows),
            "window_source": reads(work.copy_window, rows),
            "target": reads(work.copy_target, rows),
            "offset": reads(work.copy_offset, rows),
        }

    def copy_states(
        self, name: str, shape: BatchShape, layers: Sequence[int], places: dict[str, Use]
    ) -> None:
        """States from source to target, windows from window_source at offset to target."""
        mask, written = shape.state_blocks, shape.state_written
        for index in layers:
            self._setup.kernels.launch_kernel(
                "migrate_states",
                {
                    "state": updates(self._model.states[index], mask=mask, written=written),
                    "source": places["source"],
                    "target": places["target"],
                },
                name=f"{name}.state.{index}",
                step=shape.step,
            )
            self._setup.kernels.launch_kernel(
                "migrate_windows",
                {
                    "window": updates(self._model.conv_windows[index], mask=mask, written=written),
                    "source": places["window_source"],
                    "target": places["target"],
                    "offset": places["offset"],
                },
                name=f"{name}.conv.{index}",
                step=shape.step,
                width=self._conv_width,
            )
