"""The command gate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.table import Table

from racegate.check.checker import Checker
from racegate.cli.options import (
    AllCoresOption,
    Audit,
    AuditOption,
    BudgetOption,
    Explore,
    FaultOption,
    JsonOption,
    ScenariosOption,
    SeedOption,
    StrictOption,
    TimeoutOption,
    benign_of,
    cores,
    progress_bar,
    stdout_console,
    tell,
    write_json,
)
from racegate.cli.pictures import (
    Examined,
    HtmlOption,
    SvgOption,
    TraceOutOption,
    Wanted,
    draw,
    seen_in,
)
from racegate.faults.catalogue import find_fault
from racegate.history.finding import Verdict
from racegate.history.witness import load_witnesses
from racegate.jobs.gate import GateJudge, GateResult, GateSpec, run_gate
from racegate.jobs.stopping import StoppedError, known_result
from racegate.jobs.time_limit import TIMEOUT_S
from racegate.report.text import print_gate
from racegate.repro.search import BUDGET
from racegate.scenario.files import load_all, scenario_paths

app = typer.Typer(add_completion=False)


@app.command()
def gate(
    fault: FaultOption = None,
    scenarios: ScenariosOption = Path("scenarios"),
    must_fail: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Witnesses that must still show what they were made for."),
    ] = None,
    select: Annotated[
        str | None,
        typer.Option(
            "-k",
            metavar="EXPRESSION",
            help="Only scenarios and witnesses whose names contain a word, as in "
            "'align and not (offload or graph)'.",
        ),
    ] = None,
    only_list: Annotated[
        bool | None, typer.Option("--list", help="Run nothing: say what would be run.")
    ] = None,
    workers: AllCoresOption = None,
    explore: Annotated[
        Explore, typer.Option(help="Climb the ladder where a conflict exists, or run eagerly only.")
    ] = Explore.LADDER,
    budget: BudgetOption = BUDGET,
    seed: SeedOption = 0,
    audit: AuditOption = Audit.ON,
    strict: StrictOption = None,
    timeout: TimeoutOption = TIMEOUT_S,
    svg: SvgOption = None,
    html: HtmlOption = None,
    trace_out: TraceOutOption = None,
    json: JsonOption = None,
) -> None:
    """Run every scenario on the virtual device through all oracles. The result is the same for any
    number of workers.
    """
    given = _given(scenarios, must_fail, select)
    if only_list:
        _print_list(given, json)
        return
    if fault is not None:
        find_fault(fault)
    look = GateJudge(
        budget=budget if explore is Explore.LADDER else None,
        seed=seed,
        is_audited=audit is Audit.ON,
    )
    stop: StoppedError | None = None
    with progress_bar() as progress:
        task = progress.add_task("gate", total=len(given.names))
        try:
            found = run_gate(
                given,
                look=look,
                fault=fault,
                seed=seed,
                workers=workers or cores(),
                timeout_s=timeout,
                on_done=lambda name: progress.update(task, advance=1, description=name),
            )
        except StoppedError as error:
            stop, found = error, known_result(error, GateResult)
    result = msgspec.structs.replace(found, benign=benign_of(strict))
    seen = _first_seen(given, result) if stop is None else None
    shown = {} if seen is None else {seen.judged.result.scenario: seen.shown}
    tell(json, result, lambda: print_gate(stdout_console(), result, shown))
    if stop is not None:
        raise stop
    draw(Wanted(svg, html, trace_out), seen)
    raise typer.Exit(result.exit_code)


def _given(scenarios: Path, must_fail: Path | None, select: str | None) -> GateSpec:
    """What is to be run."""
    given = GateSpec(
        scenarios=tuple(load_all(scenario_paths(scenarios))),
        must_fail=() if must_fail is None else tuple(load_witnesses(must_fail)),
    )
    return given if select is None else given.selected(select)


def _first_seen(given: GateSpec, result: GateResult) -> Examined | None:
    """The first scenario with a finding, run again to be looked at: one defect shows in many. One
    in which it matters comes before one in which it does not.
    """
    found = [run for run in result.scenarios if run.findings]
    matter = [run for run in found if run.verdict is not Verdict.BENIGN]
    if not found:
        return None
    run = (*matter, *found)[0]
    path, scenario = next(each for each in given.scenarios if each[1].name == run.scenario)
    fault = None if run.fault is None else find_fault(run.fault)
    return seen_in(Checker(scenario, replay=f"racegate run {path}"), run, fault)


def _print_list(given: GateSpec, json: str | None) -> None:
    rows = [
        *(("scenario", scenario.name, str(path)) for path, scenario in given.scenarios),
        *(("witness", path.name, str(path)) for path, _ in given.must_fail),
    ]
    if json is not None:
        keys = ("kind", "name", "file")
        write_json(json, [dict(zip(keys, row, strict=True)) for row in rows])
    if json != "-":
        table = Table("kind", "name", "file")
        for row in rows:
            table.add_row(*row)
        stdout_console().print(table)
