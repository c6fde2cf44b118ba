"""Who has which slot: a request takes one when it enters and keeps it until it ends or falls."""

from __future__ import annotations

from collections.abc import Mapping

from racegate.engine.rows.parts import RowParts
from racegate.engine.rows.stages import Batch
from racegate.engine.slots.memory import SlotMemory
from racegate.engine.slots.parts import SlotParts
from racegate.engine.state.plan import PlanEntry, StepPlan, region
from racegate.engine.state.setup import Setup
from racegate.engine.state.view import PrevStep


class BatchSlots(Batch):
    """Slots of requests, and the rows of a step. A request that skips a step keeps everything. No
    row can be rotated, and mirrors hold what the scheduler counts on.
    """

    def __init__(self, setup: Setup, memory: SlotMemory, rows: RowParts, parts: SlotParts) -> None:
        super().__init__()
        sizes = setup.sizes
        self._device = setup.device
        self._counters = setup.counters
        self._memory = memory
        self._rows = rows
        self._parts = parts
        self._interval = setup.scenario.engine.state_interval
        self._threshold = 1 + sizes.drafts
        self._widths = {"block_table": sizes.columns, "state_table": sizes.state_columns}
        self._specs = {request.name: request for request in setup.scenario.requests}
        self._free = list(range(sizes.rows, 0, -1))  # the one that was freed last is taken first
        self._slot_of: dict[str, int] = {}
        self._row_of: dict[str, int] = {}
        self._used: set[int] = set()

    @property
    def row_of(self) -> Mapping[str, int]:
        return self._row_of

    def names(self) -> tuple[str, ...]:
        return tuple(self._row_of)

    def slots(self) -> tuple[int, ...]:
        return self._memory.slots

    def clear_tables(self) -> None:
        """Slots were cleared when they were made."""

    def update(self, plan: StepPlan, prev: PrevStep) -> None:
        self._memory.slots = ()  # an idle step has no rows of requests
        with self._device.action("update_states", step=plan.step):
            for name in (*plan.ended, *plan.preempted):
                self._leave(name)
                prev.row_of.pop(name, None)
            for name in plan.ended:
                self._states.pop(name, None)
            for entry in plan.entries:
                self._update(entry, plan.step)

    def _leave(self, name: str) -> None:
        slot = self._slot_of.pop(name, None)
        if slot is not None:
            self._free.append(slot)

    def _update(self, entry: PlanEntry, step: int) -> None:
        name = entry.request
        if name not in self._slot_of:
            self._states[name] = self._rows.enter(entry, self._states.get(name))
            self._take_slot(entry, step)
        state = self._states[name]
        state.computed = entry.computed
        if entry.known_tokens is not None:
            state.tokens = entry.known_tokens
        if len(entry.blocks) > state.blocks:
            self._stage_table("block_table", entry, entry.blocks, step)
        if len(entry.state_blocks) > state.state_blocks:
            self._stage_table("state_table", entry, entry.state_blocks, step)
        state.blocks, state.state_blocks = len(entry.blocks), len(entry.state_blocks)

    def _take_slot(self, entry: PlanEntry, step: int) -> None:
        name, spec = entry.request, self._specs[entry.request]
        slot = self._slot_of[name] = self._free.pop()
        self._counters.add("slot_reuses", slot in self._used)
        self._used.add(slot)
        rows = self._parts.entry_rows(entry, spec, interval=self._interval)
        self._memory.enter(name, slot, rows, step=step)

    def _stage_table(
        self, table: str, entry: PlanEntry, blocks: tuple[int, ...], step: int
    ) -> None:
        row = (*blocks, *[0] * (self._widths[table] - len(blocks)))
        slot = self._slot_of[entry.request]
        self._memory.writes[table].stage(slot, row, own=(entry.request, step))

    def move(self, plan: StepPlan) -> None:
        """By region, then in the plan's order."""
        with self._device.action("lay_out", step=plan.step):
            entries = sorted(plan.entries, key=lambda e: region(e, threshold=self._threshold))
            self._row_of = {entry.request: row for row, entry in enumerate(entries)}
            self._memory.slots = tuple(self._slot_of[name] for name in self._row_of)
