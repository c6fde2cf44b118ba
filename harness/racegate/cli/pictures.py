"""What run, replay, gate and explain show of a finding: its cause, a picture in text, and the files
that were asked for.
"""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec
import typer

from racegate.check.checker import Checker
from racegate.check.judge import Judged
from racegate.cli.options import fail, place_to_write, say, write_text
from racegate.faults.catalogue import find_fault
from racegate.faults.fault import Fault
from racegate.history.outcome import RunResult
from racegate.history.schedule import parse_schedule
from racegate.history.witness import Witness
from racegate.report.cause.account import Accounted, accounted, deciding_conflict
from racegate.report.text import Shown
from racegate.report.timeline.chrome import chrome_trace
from racegate.report.timeline.model import Timeline, timeline_of
from racegate.report.timeline.plain import plain_timeline

if TYPE_CHECKING:
    from racegate.report.timeline.material import Material

SvgOption = Annotated[
    Path | None,
    typer.Option("--svg", metavar="PATH", help="Draw the finding.", callback=place_to_write),
]
HtmlOption = Annotated[
    Path | None,
    typer.Option(
        "--html",
        metavar="PATH",
        help="Write the report of the finding as one page with pictures.",
        callback=place_to_write,
    ),
]
TraceOutOption = Annotated[
    Path | None,
    typer.Option(
        "--trace-out",
        metavar="PATH",
        help="Write the run as a trace that Perfetto opens.",
        callback=place_to_write,
    ),
]


class Wanted(NamedTuple):
    """Files to be written."""

    svg: Path | None = None
    html: Path | None = None
    trace_out: Path | None = None

    def refuse_all(self, why: str) -> None:
        """Ends the command if any was asked for."""
        for path in filter(None, self):
            fail(f"{why}, so {path} is not written")

    def leave_out(self, why: str) -> None:
        """Says of each that it is not written. What the command ends with is the run's."""
        for path in filter(None, self):
            say(f"{why}, so {path} is not written")


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
    def shown(self) -> Shown:
        """What a terminal shows."""
        timeline = self.timeline
        return Shown(self.found.account, [] if timeline is None else plain_timeline(timeline))


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


def shown_of(seen: Examined | None) -> Shown | None:
    """What a terminal shows, if there is anything."""
    return None if seen is None else seen.shown


def draw(wanted: Wanted, seen: Examined | None) -> None:
    """The files that were asked for."""
    if seen is None:
        wanted.leave_out("nothing was found")
        return
    timeline = seen.timeline
    if timeline is None:
        wanted._replace(html=None).leave_out("the finding has no two operations to draw")
    else:
        draw_timeline(wanted, timeline)
    if wanted.html is not None:
        _write_page(wanted.html, seen)


def draw_timeline(wanted: Wanted, timeline: Timeline) -> None:
    """The pictures alone. jinja2 is imported for these and nothing else."""
    if wanted.trace_out is not None:
        write_text(wanted.trace_out, chrome_trace(timeline).decode())
    if wanted.svg is not None:
        from racegate.report.timeline.svg import svg_timeline

        write_text(wanted.svg, svg_timeline(timeline))


def _write_page(path: Path, seen: Examined) -> None:
    from racegate.report.timeline.page import finding_page

    write_text(path, finding_page(material_beside(seen)))


def material_beside(seen: Examined) -> Material:
    """All that a page is made of: the run, and others that differ from it in one hold."""
    from racegate.report.timeline.material import material_of
    from racegate.repro.sweep import sweep

    checker, fault, judged, found = seen
    conflict = deciding_conflict(judged, found.seating)
    swept = () if conflict is None else sweep(checker, judged, conflict, fault)
    return material_of(
        judged,
        found,
        title=checker.scenario.title,
        reference=checker.reference.observations,
        swept=swept,
    )
