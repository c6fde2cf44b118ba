"""The command explain."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from racegate.check.checker import Checker
from racegate.check.repro.explain import Racing, explain_failure, explain_pair
from racegate.cli.help.named import FaultOption
from racegate.cli.options import JsonOption, fail, stdout_console, tell
from racegate.cli.pictures import (
    HtmlOption,
    PictureFiles,
    SvgOption,
    TraceOutOption,
    draw,
    draw_timeline,
)
from racegate.faults.catalogue import find_fault
from racegate.history.outcome import SCHEMA
from racegate.history.schedule import EAGER, parse_schedule
from racegate.history.witness import load_witness
from racegate.report.finding.drawing import seen_in_witness
from racegate.report.search import print_explanation
from racegate.report.timeline.model import racing_pair, timeline_of
from racegate.report.timeline.plain import plain_timeline
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
    svg: SvgOption = None,
    html: HtmlOption = None,
    trace_out: TraceOutOption = None,
    json: JsonOption = None,
) -> None:
    """Explain a witness; or say by which edges two operations of a scenario are ordered, or not."""
    wanted = PictureFiles(svg, html, trace_out)
    is_witness = target.name.endswith(WITNESS_SUFFIX)
    if pair is not None:
        _explain_pair(target, pair, fault, wanted, json)
    elif is_witness:
        _explain_witness(target, wanted, json)
    else:
        fail("say which operations of the scenario: --pair OP OP")


def _explain_witness(target: Path, wanted: PictureFiles, json: str | None) -> None:
    witness = load_witness(target)
    schedule = parse_schedule(list(witness.holds))
    fault = None if witness.fault is None else find_fault(witness.fault)
    checker = Checker(witness.scenario, replay=f"racegate run {target}")
    explanation = explain_failure(checker, schedule, fault)
    seen = seen_in_witness(witness, checker, target)
    assert seen is not None, "a failure was explained"
    shown = {"schema": SCHEMA, **msgspec.to_builtins(explanation)}
    account, picture = seen.shown
    tell(json, shown, lambda: print_explanation(stdout_console(), explanation, picture, account))
    draw(wanted, seen)


def _explain_pair(
    target: Path, pair: tuple[str, str], fault: str | None, wanted: PictureFiles, json: str | None
) -> None:
    """Of a scenario's eager run, or of the run of a witness."""
    if target.name.endswith(WITNESS_SUFFIX):
        witness = load_witness(target)
        scenario, schedule = witness.scenario, parse_schedule(list(witness.holds))
        fault = witness.fault
    else:
        scenario, schedule = load(target), EAGER
    found = None if fault is None else find_fault(fault)
    checker = Checker(scenario, replay=f"racegate run {target}")
    run = checker.execute(schedule=schedule, fault=found)
    explanation = explain_pair(run.trace, *pair)
    timeline = None
    if isinstance(explanation, Racing):
        racing = racing_pair(run.trace, explanation.first, explanation.second)
        timeline = timeline_of(run, racing)
    picture = [] if timeline is None else plain_timeline(timeline)
    shown = {"schema": SCHEMA, **msgspec.to_builtins(explanation)}
    tell(json, shown, lambda: print_explanation(stdout_console(), explanation, picture))
    if timeline is None:
        wanted.refuse_all("nothing races")
    else:
        PictureFiles(html=wanted.html).refuse_all(
            "a page is about a finding: explain a witness, or run"
        )
        draw_timeline(wanted, timeline)
