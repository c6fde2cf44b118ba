"""What the device keeps of each request, by slot, and the host's way to change it.

The host never rewrites a table: it collects the rows that changed, in the pool, and a kernel writes
them where they belong. Slot 0, the null slot, is nobody's: padding rows stand in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import DTypeLike

from racegate.device.masks import mask_of
from racegate.device.protocol import DeviceBuffer, Use, reads, writes
from racegate.engine.slots.pool import HostPool, PooledTwin
from racegate.engine.state.setup import Setup
from racegate.engine.state.sizes import Sizes
from racegate.engine.state.view import StepView
from racegate.history.trace import Owner
from racegate_kernels.backend import Backend
from racegate_kernels.numerics import Array

NULL_SLOT = 0
# Tables that the host changes: when a request enters, or gets more blocks.
STAGED = ("block_table", "state_table", "temperature", "seed", "computed", "accepted", "column")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotTables:
    """Device memory by slot, [1 + R_max, ...].

    block_table, state_table, temperature, seed: as the host staged them
    computed, accepted, column, last_token, drafts: what the last step of the slot's request left
    """

    block_table: DeviceBuffer
    state_table: DeviceBuffer
    temperature: DeviceBuffer
    seed: DeviceBuffer
    computed: DeviceBuffer
    accepted: DeviceBuffer
    column: DeviceBuffer
    last_token: DeviceBuffer
    drafts: DeviceBuffer


def _table_shapes(sizes: Sizes) -> dict[str, tuple[tuple[int, ...], DTypeLike]]:
    special: dict[str, tuple[tuple[int, ...], DTypeLike]] = {
        "block_table": ((sizes.columns,), np.int32),
        "state_table": ((sizes.state_columns,), np.int32),
        "temperature": ((), np.float32),
        "seed": ((), np.uint32),
        "drafts": ((sizes.drafts,), np.int32),
    }
    return {field.name: special.get(field.name, ((), np.int32)) for field in fields(SlotTables)}


class WrittenTables(NamedTuple):
    """Those of SlotTables. Written."""

    block_table: Array
    state_table: Array
    temperature: Array
    seed: Array
    computed: Array
    accepted: Array
    column: Array
    last_token: Array
    drafts: Array


def _clear_slots(kernels: Backend, tables: WrittenTables) -> None:
    """No slot holds a block, and every count is 1."""
    for table in tables:
        kernels.fill(table, value=0)
    kernels.fill(tables.accepted, value=1)


class StagedWrites:
    """The rows of one table that the host changed since the last step."""

    def __init__(self, setup: Setup, pool: HostPool, name: str, table: DeviceBuffer) -> None:
        rows, device = setup.sizes.rows, setup.device
        self._setup = setup
        self._name = name
        self.table = table
        shape = (rows, *table.shape[1:])
        self._rows = PooledTwin(pool, device, f"{name}_rows", shape, table.dtype)
        self._slots = PooledTwin(pool, device, f"{name}_slots", (rows,), np.int32)
        self._staged: dict[int, tuple[object, Owner]] = {}

    def stage(self, slot: int, row: object, *, own: Owner) -> None:
        """The slot's row is this from the next step on. own: whose it is"""
        self._staged[slot] = (row, own)

    def apply(self, step: int) -> None:
        """Writes them, on the device."""
        if not self._staged:
            return
        slots, count = sorted(self._staged), len(self._staged)
        self._slots.cpu.write(np.array(slots, np.int32))
        self._rows.cpu.write([self._staged[slot][0] for slot in slots])
        self._setup.kernels.launch_kernel(
            "scatter_rows",
            {
                "table": writes(
                    self.table,
                    mask=mask_of(slots),
                    own=tuple(self._staged[slot][1] for slot in slots),
                ),
                "slots": reads(self._slots.gpu, count),
                "rows": reads(self._rows.gpu, count),
            },
            name=f"apply.{self._name}",
            step=step,
        )
        self._setup.counters.add("staged_writes", count)
        self._staged.clear()


def slot_map(setup: Setup, pool: HostPool) -> PooledTwin:
    """[R] int32, the slot of each row: in the pool."""
    return PooledTwin(pool, setup.device, "slot_of", (setup.sizes.rows,), np.int32)


class MemoryParts(Protocol):
    """What of this can be exchanged. See SlotParts."""

    @property
    def writes(self) -> Callable[[Setup, HostPool, str, DeviceBuffer], StagedWrites]:
        """How the host changes a table."""
        ...

    @property
    def slot_map(self) -> Callable[[Setup, HostPool], PooledTwin]:
        """Where it writes which slot each row is of."""
        ...


class SlotMemory:
    """The tables, the staged writes of those that the host changes, and who stands in which row.

    slots: of each row of the step; written: request -> the step in which its results were written
    """

    def __init__(self, setup: Setup, parts: MemoryParts, pool: HostPool) -> None:
        self._setup = setup
        device, count = setup.device, 1 + setup.sizes.rows
        self.tables = SlotTables(
            **{
                name: device.device_buffer(
                    f"slot_{name}", (count, *shape), dtype, stream=setup.compute
                )
                for name, (shape, dtype) in _table_shapes(setup.sizes).items()
            }
        )
        self.writes = {
            name: parts.writes(setup, pool, name, getattr(self.tables, name)) for name in STAGED
        }
        rows = (setup.sizes.rows,)
        self.slot_of = parts.slot_map(setup, pool)
        self.token_slots = PooledTwin(pool, device, "token_slots", rows, np.int32)
        self.slots: tuple[int, ...] = ()
        self._written: dict[str, int] = {}
        self._clear()

    def _clear(self) -> None:
        """Slots hold nothing, and the null slot for good."""
        tables = self.tables
        self._setup.kernels.launch_kernel(
            _clear_slots,
            {field.name: writes(getattr(tables, field.name)) for field in fields(SlotTables)},
            name="clear_slots",
            step=-1,
        )

    def enter(self, name: str, slot: int, rows: Mapping[str, object], *, step: int) -> None:
        """A request takes a slot, with these rows of tables."""
        for table, row in rows.items():
            self.writes[table].stage(slot, row, own=(name, step))
        self._written[name] = step

    def apply(self, step: int) -> None:
        """What the host staged is written."""
        for staged in self.writes.values():
            staged.apply(step)

    def owners(self, view: StepView) -> tuple[tuple[int, Owner], ...]:
        """(slot, owner) pairs: whose results each row means to find in its slot."""
        rows = zip(self.slots, view.rows, strict=True)
        return tuple((slot, (name, self._written[name])) for slot, name in rows)

    def gather(self, view: StepView, name: str, target: DeviceBuffer, *, expect: bool) -> None:
        """The step's rows of a table."""
        owners = self.owners(view) if expect else ()
        rows, table = view.shape.rows, getattr(self.tables, name)
        if name in self.writes:
            table = self.writes[name].table
        self._setup.kernels.launch_kernel(
            "gather_rows",
            {
                "table": reads(table, mask=self._mask(view), expect=owners),
                "slots": reads(self.slot_of.gpu, rows),
                "rows": writes(target, rows),
            },
            name=f"gather.{name}",
            step=view.shape.step,
        )

    def _mask(self, view: StepView) -> int:
        return mask_of(self.slots if view.rows else (NULL_SLOT,))

    def keep(self, view: StepView, table: DeviceBuffer, rows: DeviceBuffer, *, name: str) -> None:
        """Rows of the step go to their slots of a table."""
        mask, own = self.owned(view)
        self._setup.kernels.launch_kernel(
            "scatter_rows",
            {
                "table": writes(table, mask=mask, own=own),
                "slots": reads(self.slot_of.gpu, view.shape.rows),
                "rows": reads(rows, view.shape.rows),
            },
            name=f"keep.{name}",
            step=view.shape.step,
        )

    def owned(self, view: StepView) -> tuple[int, tuple[Owner, ...]]:
        """The slots of a step's rows, and whose results stand there behind it, by slot."""
        by_slot = sorted(zip(self.slots, view.owners, strict=True))
        return mask_of(self.slots), tuple(owner for _, owner in by_slot)

    def written(self, view: StepView) -> None:
        """The step's results stand in its slots."""
        self._written |= dict.fromkeys(view.rows, view.shape.step)

    def in_slots(self, table: DeviceBuffer, view: StepView, *, expect: Sequence[bool]) -> Use:
        """A use of a table that rows reach through slots. expect: which rows mean to find theirs"""
        pairs = zip(expect, self.owners(view), strict=True)
        owners = tuple(owner for is_meant, owner in pairs if is_meant)
        return reads(table, expect=owners)
