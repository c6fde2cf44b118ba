"""The command ops."""

from __future__ import annotations

import typer

from racegate.check.checker import Checker
from racegate.check.repro.operations import described
from racegate.cli.help.named import FaultOption, ScenarioArgument
from racegate.cli.options import (
    JsonOption,
    stdout_console,
    tell,
)
from racegate.faults.catalogue import find_fault
from racegate.report.search import print_operations
from racegate.scenario.files import load, script_file

app = typer.Typer(add_completion=False)


@app.command()
def ops(
    scenario: ScenarioArgument,
    fault: FaultOption = None,
    json: JsonOption = None,
) -> None:
    """List what holds can name: operations, host points, edges, and holds that are useful."""
    loaded = load(script_file(scenario))
    found = None if fault is None else find_fault(fault)
    result = described(Checker(loaded), found)
    command = f"racegate run {scenario}" + (f" --fault {fault}" if fault else "")
    tell(json, result, lambda: print_operations(stdout_console(), result, command))
