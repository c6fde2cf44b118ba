"""The command explain."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated, NamedTuple

import msgspec
import typer

from racegate.check.checker import Checker
from racegate.cli.options import (
    FaultOption,
    JsonOption,
    fail,
    place_to_write,
    stdout_console,
    tell,
    write_text,
)
from racegate.faults.catalogue import find_fault
from racegate.history.outcome import SCHEMA
from racegate.history.schedule import parse_schedule
from racegate.history.witness import load_witness
from racegate.report.search import print_explanation
from racegate.report.timeline.chrome import chrome_trace
from racegate.report.timeline.model import Timeline, timeline_of
from racegate.report.timeline.plain import plain_timeline
from racegate.repro.explain import Explained, Explanation, Racing, explain_failure, explain_pair
from racegate.scenario.files import load

WITNESS_SUFFIX = ".witness.json"

app = typer.Typer(add_completion=False)


@app.command()
def explain(
    target: Annotated[Path, typer.Argument(metavar="FILE", help="A witness or a scenario.")],
    pair: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="OP OP", help="Two operations or host actions of a scenario."),
    ] = None,
    fault: FaultOption = None,
    svg: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Draw the race.", callback=place_to_write),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="Write what a witness shows as one page with the picture.",
            callback=place_to_write,
        ),
    ] = None,
    trace_out: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="Write the run as a trace that Perfetto opens.",
            callback=place_to_write,
        ),
    ] = None,
    json: JsonOption = None,
) -> None:
    """Explain a witness; or say by which edges two operations of a scenario are ordered, or not."""
    if target.name.endswith(WITNESS_SUFFIX):
        witness = load_witness(target)
        scenario, schedule = witness.scenario, parse_schedule(list(witness.holds))
        fault = witness.fault
    else:
        scenario, schedule = load(target), parse_schedule([])
    found = None if fault is None else find_fault(fault)
    checker = Checker(scenario, replay=f"racegate run {target}")
    explanation: Explained
    trace = checker.execute(schedule=schedule, fault=found).trace
    if pair is not None:
        explanation = explain_pair(trace, *pair)
    elif target.name.endswith(WITNESS_SUFFIX):
        explanation = explain_failure(checker, schedule, found)
    else:
        fail("say which operations of the scenario: --pair OP OP")
    race = explanation.race if isinstance(explanation, Explanation) else explanation
    timeline = timeline_of(trace, race.first, race.second) if isinstance(race, Racing) else None
    shown = {"schema": SCHEMA, **msgspec.to_builtins(explanation)}
    picture = [] if timeline is None else plain_timeline(timeline)
    tell(json, shown, lambda: print_explanation(stdout_console(), explanation, picture))
    wanted = Wanted(svg, html, trace_out)
    if timeline is None:
        wanted.refuse_all("nothing races")
    elif isinstance(explanation, Explanation):
        _draw(timeline, wanted)
        if html is not None:
            _write_page(html, explanation, timeline, scenario=scenario.title, target=target)
    else:
        Wanted(html=html).refuse_all("a page is about a witness")
        _draw(timeline, wanted)


class Wanted(NamedTuple):
    """Files to be written."""

    svg: Path | None = None
    html: Path | None = None
    trace_out: Path | None = None

    def refuse_all(self, why: str) -> None:
        """Ends the command if any was asked for."""
        for path in filter(None, self):
            fail(f"{why}, so {path} is not written")


def _draw(timeline: Timeline, wanted: Wanted) -> None:
    """The pictures that were asked for. jinja2 is imported for these and nothing else."""
    if wanted.trace_out is not None:
        write_text(wanted.trace_out, chrome_trace(timeline).decode())
    if wanted.svg is not None:
        from racegate.report.timeline.svg import svg_timeline

        write_text(wanted.svg, svg_timeline(timeline))


def _write_page(
    path: Path, explanation: Explanation, timeline: Timeline, *, scenario: str, target: Path
) -> None:
    from racegate.report.timeline.page import race_page

    replay = f"racegate replay {quote(str(target))}"
    write_text(path, race_page(explanation, timeline, scenario=scenario, replay=replay))
