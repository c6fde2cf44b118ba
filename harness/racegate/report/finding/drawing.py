"""Runs with a finding, looked at and drawn: what the commands and `import racegate` share."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from racegate.check.checker import Checker
from racegate.check.judge import Judged
from racegate.faults.catalogue import find_fault
from racegate.faults.fault import Fault
from racegate.history.outcome import RunResult
from racegate.history.schedule import parse_schedule
from racegate.history.witness import Witness, load_witness
from racegate.report.cause.account import Accounted, accounted, deciding_conflict
from racegate.report.text import ShownFinding
from racegate.report.timeline.model import Timeline, timeline_of
from racegate.report.timeline.plain import plain_timeline
from racegate.scenario.errors import BadInputError
from racegate.scenario.untrusted.files import write_whole

if TYPE_CHECKING:
    from racegate.report.finding.pictured import PicturedFinding

StrPath = str | os.PathLike[str]


class Examined(NamedTuple):
    """A run in which something was found, as it was run again to be looked at."""

    checker: Checker
    fault: Fault | None
    judged: Judged
    found: Accounted

    @property
    def timeline(self) -> Timeline | None:
        """None where the finding has no two operations."""
        pair = self.found.pair
        return None if pair is None else timeline_of(self.judged.run, pair)

    @property
    def shown(self) -> ShownFinding:
        """What a terminal shows."""
        timeline = self.timeline
        return ShownFinding(
            self.found.account, [] if timeline is None else plain_timeline(timeline)
        )


def seen_in(
    checker: Checker, result: RunResult, fault: Fault | None, judged: Judged | None = None
) -> Examined | None:
    """The run that a result is of; None if nothing was found. judged: it, if it is at hand"""
    if not result.findings:
        return None
    if judged is None:
        schedule = parse_schedule(list(result.schedule))
        judged = checker.run_judged(schedule=schedule, fault=fault)
    # The result has the last word: on what all schedules come to, and on how to see it again.
    judged = Judged(run=judged.run, result=result, conflicts=judged.conflicts)
    found = accounted(judged)
    return None if found is None else Examined(checker, fault, judged, found)


def seen_in_witness(witness: Witness, checker: Checker, file: Path) -> Examined | None:
    """The run of a witness. file: what replays it, as it is to be named"""
    schedule = parse_schedule(list(witness.holds))
    fault = None if witness.fault is None else find_fault(witness.fault)
    run = checker.execute(schedule=schedule, fault=fault)
    judged = checker.judged(run, schedule=schedule, fault=fault)
    replay = f"racegate replay {quote(str(file))}"
    findings = [msgspec.structs.replace(f, replay=replay) for f in judged.result.findings]
    result = msgspec.structs.replace(judged.result, findings=tuple(findings))
    return seen_in(checker, result, fault, judged)


def draw(witness: Witness | StrPath, path: StrPath) -> None:
    """Runs a witness again and draws its finding: a name that ends in `.html` gets the report as
    one page with pictures, one in `.svg` the picture alone. Raises BadInputError if there is
    nothing to draw.

    >>> racegate.draw(witness, folder / "row-moves.html")
    >>> racegate.draw(folder / "row-moves.witness.json", folder / "row-moves.svg")
    >>> (folder / "row-moves.svg").read_text().startswith("<svg")
    True
    """
    target = Path(path)
    if target.suffix not in (".html", ".svg"):
        raise BadInputError(f"{target}: a picture's name ends in .html or .svg")
    file = Path("FILE" if isinstance(witness, Witness) else witness)
    given = witness if isinstance(witness, Witness) else load_witness(file)
    seen = seen_in_witness(given, Checker(given.scenario, replay="racegate run FILE"), file)
    if seen is None:
        raise BadInputError(f"{given.title}: nothing is found, so there is nothing to draw")
    text = page_of(seen) if target.suffix == ".html" else picture_of(seen)
    try:
        write_whole(target, text.encode())
    except OSError as error:
        raise BadInputError(f"cannot write {target}: {error.strerror or error}") from error


def page_of(seen: Examined) -> str:
    """The report of a finding, as HTML."""
    from racegate.report.finding.page import finding_page

    return finding_page(pictured_beside(seen))


def picture_of(seen: Examined) -> str:
    """SVG. Raises BadInputError for a finding without two operations."""
    from racegate.report.timeline.svg import svg_timeline

    if seen.timeline is None:
        raise BadInputError("the finding has no two operations to draw; name a page: .html")
    return svg_timeline(seen.timeline)


def page_of_all(found: Sequence[tuple[str, str, Examined | None]]) -> str:
    """Several findings as one page. found: (witness, outcome of its replay, what was seen)"""
    from racegate.report.finding.page import findings_page

    shown = [_replayed(*one) for one in found]
    return findings_page(f"{len(shown)} witnesses replayed", shown)


def _replayed(name: str, outcome: str, seen: Examined | None) -> PicturedFinding:
    """What a replay showed."""
    from racegate.report.finding.pictured import PicturedFinding

    if seen is None:
        return PicturedFinding(name=name, outcome=outcome, title="nothing was found", impact="")
    return msgspec.structs.replace(_pictured(seen, ()), name=name, outcome=outcome)


def pictured_beside(seen: Examined) -> PicturedFinding:
    """All that a page is made of: the run, and others that differ from it in one hold."""
    from racegate.check.repro.sweep import sweep

    checker, fault, judged, found = seen
    conflict = deciding_conflict(judged, found.assignment)
    return _pictured(seen, () if conflict is None else sweep(checker, judged, conflict, fault))


def _pictured(seen: Examined, swept: Sequence[Judged]) -> PicturedFinding:
    from racegate.report.finding.material import pictured_run

    return pictured_run(
        seen.judged,
        seen.found,
        title=seen.checker.scenario.title,
        reference=seen.checker.reference.observations,
        swept=swept,
    )
