"""What a page shows of a finding, as data."""

from __future__ import annotations

import msgspec

from racegate.report.cause.compared import ValueComparison
from racegate.report.cause.pair import Relation
from racegate.report.timeline.model import Timeline


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """A line of what is known of a finding. term: what it says; is_code: it is to be copied"""

    term: str
    text: str
    is_code: bool = False


class SourceLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a source, or of a change of it. role: added, removed, place, hunk or nothing"""

    text: str
    role: str = ""


class PicturedSide(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two accesses. verb: what it does with the bytes or rows; lane: by name

    stack: where the program asks for it, a frame each, innermost first
    made: where its stream was made, likewise; empty where nobody knows
    """

    name: str
    lane: str
    verb: str
    stack: tuple[str, ...] = ()
    made: tuple[str, ...] = ()


class SweptSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """One schedule of a slider. holds: as text; impact: what goes wrong under it, or nothing"""

    holds: tuple[str, ...]
    impact: str
    timeline: Timeline

    @property
    def goes_wrong(self) -> bool:
        """Whether a value is wrong under it."""
        return bool(self.impact)


class PicturedFinding(msgspec.Struct, frozen=True, kw_only=True):
    """A finding as its page has it.

    name: what it is of, in words; outcome: the verdict; title: what it is; impact: what it does
    hazard: which kind of danger, in words; fault: what was seeded, if anything was
    buffer: what both touch; places: which parts of it, and whose; allocated: where its memory was
        asked for, a frame each
    edge: what would order the two, in words; reason: why it has to; source: the lines that change,
        or those of the two places
    holds: under which it shows; replay: the command that shows it again
    further: other findings, of the same `further_of`; facts: what else is known, folded
    stops: schedules that differ in one hold, from the earliest landing to the latest
    comparison: of values with those of `compared_with`
    """

    name: str
    outcome: str
    title: str
    impact: str
    hazard: str = ""
    fault: str = ""
    relation: Relation = Relation.UNORDERED
    sides: tuple[PicturedSide, ...] = ()
    buffer: str = ""
    places: tuple[str, ...] = ()
    allocated: tuple[str, ...] = ()
    edge: str = ""
    reason: str = ""
    source: tuple[SourceLine, ...] = ()
    holds: tuple[str, ...] = ()
    replay: str = ""
    warnings: tuple[str, ...] = ()
    further: tuple[Fact, ...] = ()
    further_of: str = "run"
    facts: tuple[Fact, ...] = ()
    timeline: Timeline | None = None
    stops: tuple[SweptSchedule, ...] = ()
    comparison: ValueComparison | None = None
    compared_with: str = "reference"

    @property
    def proposed(self) -> bool:
        """Whether the source is a change, and not what stands at the two places."""
        return any(line.role == "added" for line in self.source)
