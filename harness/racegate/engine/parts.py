"""The engine's replaceable parts, by the room that owns them. A seeded fault exchanges one of them;
the engine never asks which it has.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from racegate.engine.cache.parts import CacheParts
from racegate.engine.decode.parts import DecodeParts
from racegate.engine.model.parts import ModelParts
from racegate.engine.rows.parts import RowParts
from racegate.engine.scheduling.parts import SchedulingParts
from racegate.engine.slots.parts import SlotParts


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineParts:
    """The parts of a correct engine, unless some are given."""

    scheduling: SchedulingParts = field(default_factory=SchedulingParts)
    model: ModelParts = field(default_factory=ModelParts)
    cache: CacheParts = field(default_factory=CacheParts)
    decode: DecodeParts = field(default_factory=DecodeParts)
    rows: RowParts = field(default_factory=RowParts)
    slots: SlotParts = field(default_factory=SlotParts)
