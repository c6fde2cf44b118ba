"""Who stands in which row: requests enter, leave and move, with their tables and the host's mirrors
of them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from racegate.device.protocol import HostBuffer
from racegate.engine.rows.accepted_counts import AcceptedCounts
from racegate.engine.rows.input_batch import InputBatch
from racegate.engine.rows.parts import RowParts
from racegate.engine.rows.stages import Batch
from racegate.engine.state.plan import PlanEntry, StepPlan
from racegate.engine.state.setup import Setup
from racegate.engine.state.view import PrevStep
from racegate.scenario.spec import Rotate


class BatchRows(Batch):
    """The persistent batch and the mirrors of its requests.

    count_path: told of rows that requests enter; its tables move with the rows, and so do
        others that are given
    """

    def __init__(
        self,
        setup: Setup,
        count_path: AcceptedCounts,
        parts: RowParts,
        *,
        others: tuple[HostBuffer, ...] = (),
    ) -> None:
        super().__init__()
        inputs = setup.inputs
        self._device = setup.device
        self._inputs = inputs
        self._count_path = count_path
        self._parts = parts
        self._threshold = 1 + setup.sizes.drafts
        self._specs = {request.name: request for request in setup.scenario.requests}
        self._rotations = [e for e in setup.scenario.events if isinstance(e, Rotate)]
        tables = (inputs.block_table.cpu, inputs.state_table.cpu)
        moving = (*parts.row_tables(inputs), *count_path.row_tables, *others)
        self._batch = InputBatch(moving, tables, setup.counters, swap_rows=parts.swap_rows)

    @property
    def row_of(self) -> Mapping[str, int]:
        return self._batch.row_of

    def names(self) -> tuple[str, ...]:
        return self._batch.names()

    def tables(self) -> dict[str, np.ndarray]:
        inputs = self._inputs
        return {
            "block_table": inputs.block_table.cpu.peek(),
            "state_table": inputs.state_table.cpu.peek(),
        }

    def clear_tables(self) -> None:
        for table in (self._inputs.block_table.cpu, self._inputs.state_table.cpu):
            table.write(np.zeros(table.shape, np.int32))

    def update(self, plan: StepPlan, prev: PrevStep) -> None:
        """Existing rows keep the previous step's order."""
        planned = {entry.request for entry in plan.entries}
        with self._device.action("update_states", step=plan.step):
            for name in (*plan.ended, *plan.preempted):
                self._leave(name, prev)
            for name in plan.ended:
                self._states.pop(name, None)
            for name in [name for name in self._batch.row_of if name not in planned]:
                self._leave(name, prev)
            for entry in plan.entries:
                self._update(entry)

    def _leave(self, name: str, prev: PrevStep) -> None:
        if name in self._batch.row_of:
            self._batch.remove(name)
        prev.row_of.pop(name, None)

    def _update(self, entry: PlanEntry) -> None:
        state = self._states.get(entry.request)
        if state is None or state.incarnation != entry.incarnation:
            state = self._states[entry.request] = self._parts.enter(entry, state)
        if entry.request not in self._batch.row_of:
            assert entry.known_tokens is not None
            # From here on the runner counts for itself: with more than two steps in flight the
            # scheduler's count holds the optimism of several steps, and only the last one's is
            # corrected here.
            state.computed = entry.computed
            state.tokens = entry.known_tokens
            state.blocks = state.state_blocks = 0
            self._add_row(entry)
        row = self._batch.row_of[entry.request]
        tables = self._inputs
        state.blocks = _append(tables.block_table.cpu, row, entry.blocks, state.blocks)
        state.state_blocks = _append(
            tables.state_table.cpu, row, entry.state_blocks, state.state_blocks
        )

    def _add_row(self, entry: PlanEntry) -> None:
        row = self._batch.add(entry.request)
        spec = self._specs[entry.request]
        self._inputs.block_table.cpu.write_row(row, 0)
        self._inputs.state_table.cpu.write_row(row, 0)
        self._inputs.temperature.cpu.write_row(row, spec.temperature)
        self._inputs.seed.cpu.write_row(row, spec.seed)
        self._count_path.add_row(row)

    def move(self, plan: StepPlan) -> None:
        """Condense, reorder and scripted rotations: the row moves that results in flight do not
        follow.
        """
        step, threshold = plan.step, self._threshold
        with self._device.action("condense", step=step):
            self._batch.condense()
        entries = {entry.request: entry for entry in plan.entries}
        with self._device.action("reorder", step=step):
            self._batch.reorder(entries, threshold=threshold)
        for event in self._rotations:
            if event.step == step:
                with self._device.action("rotate", step=step):
                    done = self._batch.rotate(event.requests, entries, threshold=threshold)
                if not done:
                    self.unmet_events.append(f"rotate {' '.join(event.requests)} @{step}")

    def correct(
        self, prev: PrevStep, prev_valid_count: np.ndarray, prev_accepted: np.ndarray
    ) -> None:
        """The mirrors become exact, from the previous step's counts.

        prev_valid_count, prev_accepted: [R] int32, its valid and its handed-on counts, in its row
            order
        """
        for row in self._parts.corrected(prev, self._batch.row_of):
            state = self._states.get(prev.requests[row])
            if state is None or state.incarnation != prev.incarnations[row]:
                continue
            if prev.discarded[row]:
                continue
            state.accepted_last = int(prev_accepted[row])
            valid_count = int(prev_valid_count[row])
            if prev.draft_lens[row] > 0:
                state.computed -= int(prev.draft_lens[row]) + 1 - valid_count


def _append(table: HostBuffer, row: int, blocks: tuple[int, ...], known: int) -> int:
    """Writes a table's new columns; returns how many columns the row has now."""
    if len(blocks) > known:
        table.write_columns(row, known, blocks[known:])
    return len(blocks)
