"""Command line: gate, run, faults, scenarios, bench.

Exit codes: 0 clean, 1 finding, 2 usage or bad input, 3 harness self-check failed, 4 inconclusive.
"""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NoReturn

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from racegate.bench import run_bench
from racegate.check import Checker, CheckError
from racegate.faults.catalogue import FAULTS, Fault, FaultError, find_fault
from racegate.gate import SCHEMA, GateResult, load_all, run_gate, run_object, scenario_paths
from racegate.report.text import print_gate, print_run
from racegate.request_log import scenario_file_for
from racegate.scenario import Scenario, ScenarioError
from racegate.scenario_file import explicit, load
from racegate.schedule import Schedule, ScheduleError, parse_schedule
from racegate.verdict import exit_code

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Reproduce races of asynchronous speculative decoding, or prove their absence.",
)
faults_app = typer.Typer(no_args_is_help=True, help="The seeded faults.")
scenarios_app = typer.Typer(no_args_is_help=True, help="The scenario scripts.")
app.add_typer(faults_app, name="faults")
app.add_typer(scenarios_app, name="scenarios")


class DeviceKind(StrEnum):
    VIRTUAL = "virtual"


class Audit(StrEnum):
    ON = "on"
    OFF = "off"


JsonOption = Annotated[
    str | None, typer.Option("--json", metavar="PATH|-", help="Write one JSON object here.")
]
FaultOption = Annotated[
    str | None, typer.Option("--fault", metavar="NAME", help="A seeded fault (see `faults list`).")
]
ScenariosOption = Annotated[
    Path, typer.Option("--scenarios", metavar="DIR", help="Folder of the scenario scripts.")
]
AuditOption = Annotated[
    Audit,
    typer.Option(help="Give every operation only the rows it declares, and check that it obeys."),
]


# Where there is no terminal to ask, tables are wide enough for a log.
LOG_WIDTH = 110


def stdout_console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=LOG_WIDTH)


def main() -> None:
    """Entry point."""
    try:
        app()
    except (ScenarioError, ScheduleError, FaultError, CheckError) as error:
        fail(str(error))


def fail(message: str) -> NoReturn:
    """Bad input: the reason on standard error, exit code 2."""
    print(f"racegate: {message}", file=sys.stderr)
    raise SystemExit(2)


@app.command()
def gate(
    fault: FaultOption = None,
    scenarios: ScenariosOption = Path("scenarios"),
    audit: AuditOption = Audit.ON,
    json: JsonOption = None,
) -> None:
    """Run every scenario on the virtual device through all oracles."""
    loaded = load_all(scenario_paths(scenarios))
    found = None if fault is None else find_fault(fault)
    result = _gate_with_progress(loaded, found, audit)
    if json is not None:
        write_json(json, msgspec.to_builtins(result))
    if json != "-":
        print_gate(stdout_console(), result)
    raise typer.Exit(exit_code([run.verdict for run in result.scenarios]))


def _gate_with_progress(
    loaded: list[tuple[Path, Scenario]], fault: Fault | None, audit: Audit
) -> GateResult:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("gate", total=len(loaded))
        return run_gate(
            loaded,
            fault=fault,
            is_audited=audit is Audit.ON,
            on_result=lambda run: progress.update(task, advance=1, description=run.scenario),
        )


@app.command()
def run(
    scenario: Annotated[
        Path | None, typer.Argument(metavar="[SCENARIO]", help="A scenario file.")
    ] = None,
    trace: Annotated[
        Path | None, typer.Option("--trace", metavar="CSV", help="A request log instead.")
    ] = None,
    rows: Annotated[str, typer.Option(metavar="A:B", help="Rows of the log.")] = "0:16",
    scale: Annotated[int, typer.Option(help="Divide the log's lengths by this.")] = 32,
    step_ms: Annotated[int, typer.Option(help="Milliseconds of the log per step.")] = 500,
    seed: Annotated[int, typer.Option(help="Seed of prompts and accept counts of a log.")] = 1,
    fault: FaultOption = None,
    hold: Annotated[
        list[str] | None, typer.Option("--hold", metavar="'OP until POINT'", help="A hold.")
    ] = None,
    device: Annotated[DeviceKind, typer.Option(help="Where to run.")] = DeviceKind.VIRTUAL,
    audit: AuditOption = Audit.ON,
    json: JsonOption = None,
) -> None:
    """Run one scenario, eagerly or with holds, and judge it."""
    if (scenario is None) == (trace is None):
        fail("give either a scenario file or --trace CSV")
    if scenario is not None:
        loaded, replay = load(scenario), f"racegate run {scenario}"
    else:
        assert trace is not None
        options = {"rows": rows, "scale": scale, "step_ms": step_ms, "seed": seed}
        file = scenario_file_for(trace, **options)  # type: ignore[arg-type]
        loaded = explicit(file, source=str(trace), folder=trace.parent)
        given = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in options.items())
        replay = f"racegate run --trace {trace} {given}"
    schedule = Schedule() if hold is None else parse_schedule(hold)
    found = None if fault is None else find_fault(fault)
    checker = Checker(loaded, replay=replay)
    result = checker.run(schedule=schedule, fault=found, is_audited=audit is Audit.ON)
    if json is not None:
        write_json(json, run_object(result))
    if json != "-":
        print_run(stdout_console(), result)
    raise typer.Exit(exit_code([result.verdict]))


@faults_app.command("list")
def faults_list(json: JsonOption = None) -> None:
    """Every seeded fault: kind, origin, what is expected to differ first, and where."""
    if json is not None:
        write_json(json, [fault_object(fault) for fault in FAULTS])
        return
    table = Table("name", "kind", "origin", "expect", "scenarios")
    for fault in FAULTS:
        names = ", ".join(fault.scenarios)
        table.add_row(fault.name, fault.kind, fault.origin, fault.expect, names)
    stdout_console().print(table)


def fault_object(fault: Fault) -> dict[str, Any]:
    """A fault in the JSON contract."""
    return {
        "name": fault.name,
        "kind": str(fault.kind),
        "origin": fault.origin,
        "expect": fault.expect,
        "scenarios": list(fault.scenarios),
        "summary": fault.summary,
        "holds": {name: list(holds) for name, holds in fault.holds.items()},
    }


@scenarios_app.command("list")
def scenarios_list(scenarios: ScenariosOption = Path("scenarios"), json: JsonOption = None) -> None:
    """Every scenario script: what it exercises and where it comes from."""
    loaded = load_all(scenario_paths(scenarios))
    rows = [
        {"file": str(path), "name": s.name, "title": s.title, "origin": s.origin}
        for path, s in loaded
    ]
    if json is not None:
        write_json(json, rows)
        return
    table = Table("name", "title", "origin")
    for row in rows:
        table.add_row(row["name"], row["title"], row["origin"])
    stdout_console().print(table)


@app.command()
def bench(
    seconds: Annotated[float, typer.Option(help="Time for each measurement.")] = 3.0,
    json: JsonOption = None,
) -> None:
    """Measure schedules per second on one core, split into engine, recording and oracles."""
    result = run_bench(seconds=seconds)
    if json is not None:
        write_json(json, {"schema": SCHEMA, **msgspec.to_builtins(result)})
    if json == "-":
        return
    table = Table("name", "value", "unit", "detail")
    for entry in result.results:
        table.add_row(entry.name, f"{entry.value:.3g}", entry.unit, entry.detail)
    stdout_console().print(table)


def write_json(target: str, value: Any) -> None:
    """One JSON value to standard output (`-`) or a file."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    if target == "-":
        sys.stdout.write(text + "\n")
        return
    try:
        Path(target).write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        fail(f"cannot write {target}: {error}")
