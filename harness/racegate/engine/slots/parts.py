"""What of slots and the pinned pool can be exchanged, and what a correct engine has there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from racegate.device.protocol import Device, DeviceBuffer
from racegate.engine.cache.pools import Pools
from racegate.engine.model.model import Model
from racegate.engine.slots.anchors import SlotAnchors
from racegate.engine.slots.columns import SlotColumns
from racegate.engine.slots.memory import SlotMemory, StagedWrites, slot_map
from racegate.engine.slots.pool import HostPool, PooledTwin
from racegate.engine.slots.zeroing import PooledZeroing
from racegate.engine.state.plan import PlanEntry
from racegate.engine.state.setup import Setup
from racegate.scenario.spec import Request
from racegate_kernels.numerics import Array


class EntryRows(Protocol):
    """The rows of tables with which a request takes a slot. interval: tokens per state block"""

    def __call__(
        self, entry: PlanEntry, spec: Request, *, interval: int
    ) -> Mapping[str, object]: ...


def entry_rows(entry: PlanEntry, spec: Request, *, interval: int) -> dict[str, object]:
    """All of them: nothing of the slot's last request is left."""
    return {
        "temperature": spec.temperature,
        "seed": spec.seed,
        "computed": entry.computed,
        "accepted": 1,
        "column": (entry.computed - 1) // interval if entry.computed else -1,
    }


def kept_slots(
    slot_of: Array,  # [R] int32, the slot of each row
) -> Array:
    """[R] int32: where the results of each row are kept."""
    return slot_of


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotParts:
    """pool: the pinned pool, of so many places; zeroing: who zeroes new blocks; slot_map: where the
    host writes which slot each row is of; writes: how it changes a table; columns: who moves
    states; anchors: who keeps one in every block; entry_rows, kept_slots: see there.
    """

    pool: Callable[[Device, int], HostPool] = HostPool
    zeroing: Callable[[Setup, Pools, HostPool], PooledZeroing] = PooledZeroing
    slot_map: Callable[[Setup, HostPool], PooledTwin] = slot_map
    writes: Callable[[Setup, HostPool, str, DeviceBuffer], StagedWrites] = StagedWrites
    columns: Callable[[Setup, Model, SlotMemory], SlotColumns] = SlotColumns
    anchors: Callable[[Setup, Model, SlotMemory], SlotAnchors] = SlotAnchors
    entry_rows: EntryRows = entry_rows
    kept_slots: Callable[[Array], Array] = kept_slots
