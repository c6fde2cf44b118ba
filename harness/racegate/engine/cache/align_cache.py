"""Cache modes with columns: running states move between them, and states at boundaries are kept
(docs/mechanism.md#columns).

The host decides the move before a step, from exact counts; the device keeps the state at a boundary
that the accepted tokens crossed, after the step. The previous step's counts are therefore awaited
here: align is not zero-bubble.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from racegate.device.protocol import Device, Stream, Use, reads, updates, writes
from racegate.engine.model.model import Model
from racegate.engine.state import edges
from racegate.engine.state.blocks import NULL_BLOCK
from racegate.engine.state.buffers import Inputs, Work
from racegate.engine.state.counters import Counters
from racegate.engine.state.plan import PlanEntry
from racegate.engine.state.request_state import RequestState
from racegate.engine.state.sizes import ceil_div
from racegate.engine.state.view import BatchShape
from racegate.history.trace import Owner
from racegate.scenario.spec import Scenario


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

    @property
    def any(self) -> bool:
        return bool(self.target.any())


class AlignCache:
    """The state migrations of align mode."""

    def __init__(
        self,
        scenario: Scenario,
        device: Device,
        stream: Stream,
        model: Model,
        counters: Counters,
    ) -> None:
        self._interval = scenario.engine.state_interval
        self._width = 1 + scenario.engine.draft_len_max
        self._conv_width = scenario.model.conv_width
        self._device = device
        self._stream = stream
        self._model = model
        self._counters = counters
        self._sent = device.event("postprocessed")

    def decide(
        self, entries: list[PlanEntry], states: list[RequestState], accepted: np.ndarray
    ) -> Moves:
        """Where each row's running state goes. accepted [R] int32 becomes 1 for rows that move."""
        moves = Moves(len(entries), self._width)
        for row, (entry, state) in enumerate(zip(entries, states, strict=True)):
            table = entry.state_blocks
            before = state.column
            if before < 0 and state.computed > 0:
                before = (state.computed - 1) // self._interval
            column = ceil_div(state.computed + entry.tokens, self._interval) - 1
            window = table[column : column + self._width]
            moves.window[row, : len(window)] = window
            moves.column[row] = column
            if 0 <= before != column:
                offset = int(accepted[row]) - 1
                live = before + offset
                moves.source[row] = table[live] if 0 <= live < len(table) else NULL_BLOCK
                moves.window_source[row] = table[before]
                moves.target[row] = table[column]
                moves.offset[row] = offset
                accepted[row] = 1
                self._counters.migrations += 1
            state.column = column
        return moves

    def move(self, shape: BatchShape, inputs: Inputs) -> None:
        """Before the step: the running states go to their new columns."""
        self._copy(
            "migrate",
            shape,
            self.layers,
            reads(inputs.migrate_source.gpu, shape.rows),
            reads(inputs.migrate_window.gpu, shape.rows),
            reads(inputs.migrate_target.gpu, shape.rows),
            reads(inputs.migrate_offset.gpu, shape.rows),
        )

    def guard(self, step: int) -> None:
        """The host may move and rewrite rows again."""
        self._device.wait_host(self._sent, edges.POSTPROCESS_GUARD, step=step)

    def send_tables(self, shape: BatchShape, inputs: Inputs, work: Work) -> None:
        """After the step: what decides about its states follows it, from the host's tables."""
        for target, source in (
            (work.boundary_table, inputs.state_table.cpu),
            (inputs.scheduled.gpu, inputs.scheduled.cpu),
            (inputs.column.gpu, inputs.column.cpu),
        ):
            self._device.upload(self._stream, target, source, step=shape.step, rows=shape.rows)
        self._device.record(self._stream, self._sent)

    def keep_boundaries(
        self,
        shape: BatchShape,
        inputs: Inputs,
        work: Work,
        owners: tuple[Owner, ...],
    ) -> None:
        """After the step: states at crossed boundaries are copied to the columns they complete."""
        counts = (
            reads(work.accepted, shape.rows),
            writes(work.accepted_out, shape.rows, own=owners),
        )
        self.plan(shape, inputs, work, counts)
        self.keep(shape, work, self.layers)

    @property
    def layers(self) -> tuple[int, ...]:
        """The recurrent layers."""
        return tuple(self._model.states)

    def plan(self, shape: BatchShape, inputs: Inputs, work: Work, counts: tuple[Use, Use]) -> None:
        """Which states to keep. counts: the step's counts, and where those for the next one go."""
        accepted, accepted_out = counts
        self._device.launch(
            self._stream,
            lambda k, *arrays, interval: k.boundary_plan(*arrays, interval=interval),
            "boundary_plan",
            step=shape.step,
            uses=(
                accepted,
                reads(work.computed, shape.rows),
                reads(inputs.scheduled.gpu, shape.rows),
                reads(inputs.draft_lens.gpu, shape.rows),
                reads(inputs.is_decode.gpu, shape.rows),
                reads(inputs.column.gpu, shape.rows),
                reads(work.boundary_table, shape.rows),
                writes(work.copy_source, shape.rows),
                writes(work.copy_window, shape.rows),
                writes(work.copy_target, shape.rows),
                writes(work.copy_offset, shape.rows),
                accepted_out,
            ),
            interval=self._interval,
        )

    def keep(self, shape: BatchShape, work: Work, layers: Sequence[int]) -> None:
        """Copies of some layers' states and windows, as planned."""
        self._copy(
            "keep_boundary",
            shape,
            layers,
            reads(work.copy_source, shape.rows),
            reads(work.copy_window, shape.rows),
            reads(work.copy_target, shape.rows),
            reads(work.copy_offset, shape.rows),
        )

    def _copy(
        self,
        name: str,
        shape: BatchShape,
        layers: Sequence[int],
        source: Use,
        window_source: Use,
        target: Use,
        offset: Use,
    ) -> None:
        mask = shape.state_blocks
        for index in layers:
            self._device.launch(
                self._stream,
                lambda k, *arrays: k.migrate_states(*arrays),
                f"{name}.state.{index}",
                step=shape.step,
                uses=(updates(self._model.states[index], mask=mask), source, target),
            )
            self._device.launch(
                self._stream,
                lambda k, *arrays, width: k.migrate_windows(*arrays, width=width),
                f"{name}.conv.{index}",
                step=shape.step,
                uses=(
                    updates(self._model.windows[index], mask=mask),
                    window_source,
                    target,
                    offset,
                ),
                width=self._conv_width,
            )
