"""Small charts: meters of counts. Every one says in text what it shows in length and colour."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Tone(StrEnum):
    """What a count means. Each has a symbol and a word beside its colour."""

    GOOD = "good"
    HALF = "half"
    BAD = "bad"
    QUIET = "quiet"

    @property
    def symbol(self) -> str:
        """Told apart without colour."""
        return {"good": "●", "half": "◐", "bad": "✖", "quiet": "·"}[self]


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a meter. what: the word of the legend"""

    count: int
    what: str
    tone: Tone


class Meter(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a chart. page: of the site, where more of it stands"""

    label: str
    parts: tuple[Part, ...]
    page: str = ""

    @property
    def total(self) -> int:
        """Of all pieces."""
        return sum(part.count for part in self.parts)

    @property
    def said(self) -> str:
        """The meter in words: its first piece of all, and what else there is."""
        first, *others = self.parts
        more = [f"{part.count:,} {part.what}" for part in others if part.count]
        said = f"{first.count:,} of {self.total:,} {first.what}"
        return f"{said}; {', '.join(more)}" if more else said

    @property
    def pieces(self) -> list[tuple[float, float, Part]]:
        """(where it begins, how wide it is, the piece), in percent."""
        begins, found = 0.0, []
        for part in self.parts:
            width = 100 * part.count / max(1, self.total)
            if width:
                found.append((begins, width, part))
            begins += width
        return found


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """Bars of one kind. file: where their counts are from"""

    title: str
    note: str
    file: str
    meters: tuple[Meter, ...]

    @property
    def legend(self) -> list[Part]:
        """Every kind of piece once, if there is one of it."""
        found = {p.what: p for meter in self.meters for p in meter.parts if p.count}
        return list(found.values())


def parts(**counts: tuple[int, Tone]) -> tuple[Part, ...]:
    """Pieces by their words, `_` for a blank."""
    return tuple(
        Part(count=count, what=what.replace("_", " "), tone=tone)
        for what, (count, tone) in counts.items()
    )
