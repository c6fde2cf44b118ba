"""The command explain."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from racegate.check.checker import Checker
from racegate.cli.options import FaultOption, JsonOption, fail, stdout_console, tell
from racegate.faults.catalogue import find_fault
from racegate.history.outcome import SCHEMA
from racegate.history.schedule import parse_schedule
from racegate.history.witness import load_witness
from racegate.oracles.paths import Ordered
from racegate.report.search import print_explanation
from racegate.repro.explain import Explanation, Racing, explain_failure, explain_pair
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
    explanation: Explanation | Ordered | Racing
    if pair is not None:
        trace = checker.execute(schedule=schedule, fault=found).trace
        explanation = explain_pair(trace, *pair)
    elif target.name.endswith(WITNESS_SUFFIX):
        explanation = explain_failure(checker, schedule, found)
    else:
        fail("say which operations of the scenario: --pair OP OP")
    shown = {"schema": SCHEMA, **msgspec.to_builtins(explanation)}
    tell(json, shown, lambda: print_explanation(stdout_console(), explanation))
