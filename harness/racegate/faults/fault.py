"""Fault: a seeded defect as data. It is an edge that the device drops or moves, another variant of
one engine part, or another variant of a kernel; never a branch in the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from enum import StrEnum
from typing import cast

import msgspec

from racegate.device.protocol import Device
from racegate.engine.cache.parts import CacheParts
from racegate.engine.decode.parts import DecodeParts
from racegate.engine.model.parts import ModelParts
from racegate.engine.parts import EngineParts
from racegate.engine.rows.parts import RowParts
from racegate.engine.scheduling.parts import SchedulingParts
from racegate.engine.slots.parts import SlotParts
from racegate.faults.mutations import AddedEdge, ExtendedDevice, MutatedDevice, Mutation
from racegate.scenario.settings import CacheMode
from racegate_kernels.backend import Backend, Kernel

_CORRECT = EngineParts()


class FaultKind(StrEnum):
    """ordering: wrong only under some timing; logic: always wrong; control: never wrong, must stay
    silent; variant: a historical or derived design, right or wrong as a table or a test says.
    """

    ORDERING = "ordering"
    LOGIC = "logic"
    CONTROL = "control"
    VARIANT = "variant"


class Need(StrEnum):
    """What a fault needs of the engine. X is also any writer beside the compute stream.

    H: recurrent layers beside attention; S: speculation; G: captured graphs; P: prefix caching
    X: a second stream; R: several ranks
    """

    HYBRID = "H"
    SPECULATION = "S"
    GRAPHS = "G"
    PREFIX_CACHE = "P"
    SECOND_STREAM = "X"
    RANKS = "R"


def the_parts(
    *,
    scheduling: SchedulingParts = _CORRECT.scheduling,
    model: ModelParts = _CORRECT.model,
    cache: CacheParts = _CORRECT.cache,
    decode: DecodeParts = _CORRECT.decode,
    rows: RowParts = _CORRECT.rows,
    slots: SlotParts = _CORRECT.slots,
) -> Callable[[CacheMode], EngineParts]:
    """The correct parts but for the given ones, in every cache mode."""
    parts = EngineParts(
        scheduling=scheduling, model=model, cache=cache, decode=decode, rows=rows, slots=slots
    )
    return lambda cache_mode: parts


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One seeded defect.

    number: of its cause in docs/faults.md; 0 for a variant that belongs to none
    origin: public issues; expect: the observable expected to differ first, as boundary.field, or
        `collectives`, where ranks issue different ones
    note: what is peculiar to it in this engine, such as why that field is the first
    scenarios: scenarios of the gate that show it, the smallest first
    holds: for an ordering fault, scenario -> the holds under which the wrong value appears there
    drops: names of edges that the device ignores; moved: an edge that it keeps at a wrong place
    added: edges that it keeps beside those of the engine, to try a repair
    parts: the engine parts with the defect, by cache mode
    kernels: kernel name -> its defective variant, made from the correct kernels
    ranks: those whose parts have the defect; none stands for all
    """

    name: str
    number: int
    kind: FaultKind
    needs: tuple[Need, ...] = ()
    origin: str
    summary: str
    expect: str
    note: str = ""
    scenarios: tuple[str, ...]
    holds: dict[str, tuple[str, ...]] = {}
    drops: frozenset[str] = frozenset()
    moved: Mutation | None = None
    added: tuple[AddedEdge, ...] = ()
    parts: Callable[[CacheMode], EngineParts] = the_parts()
    kernels: Mapping[str, Callable[[Backend], Kernel]] = {}
    ranks: frozenset[int] = frozenset()

    def parts_of(self, cache_mode: CacheMode, *, rank: int) -> EngineParts:
        """The parts of a rank's engine."""
        return self.parts(cache_mode) if not self.ranks or rank in self.ranks else _CORRECT

    def device(self, device: Device) -> Device:
        """The device as the engine sees it."""
        if self.moved is not None:
            device = cast(Device, MutatedDevice(device, self.moved))  # it passes on what it lacks
        return cast(Device, ExtendedDevice(device, self.added)) if self.added else device

    def backend(self, correct: Backend) -> Backend:
        """The kernels, one of them exchanged."""
        return replace(correct, **{name: make(correct) for name, make in self.kernels.items()})


def exchanged_parts(fault: Fault) -> tuple[str, ...]:
    """The engine parts that are not the correct ones, as room.part."""
    correct, parts = _by_name(_CORRECT), _by_name(fault.parts(CacheMode.NONE))
    return tuple(name for name, part in parts.items() if part is not correct[name])


def _by_name(parts: EngineParts) -> dict[str, object]:
    rooms = {room.name: getattr(parts, room.name) for room in fields(EngineParts)}
    return {
        f"{name}.{part.name}": getattr(room, part.name)
        for name, room in rooms.items()
        for part in fields(room)
    }
