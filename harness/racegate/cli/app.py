"""Command line. Exit codes: 0 clean, 1 finding, 2 usage or bad input, 3 harness self-check failed,
4 inconclusive; replay alone: 5 another signature, 6 nothing found.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.table import Table

from racegate.ab.workload import AbError
from racegate.bench.cuda import BenchPart, cuda_jobs, has_failed, run_job
from racegate.bench.virtual import BenchEntry, BenchResult, run_bench
from racegate.check.checker import Checker
from racegate.check.expected import CheckError
from racegate.check.selfcheck import Look
from racegate.cli.ab import ab
from racegate.cli.faults import faults_app
from racegate.cli.options import (
    Audit,
    AuditOption,
    BudgetOption,
    DeviceKind,
    DeviceOption,
    Explore,
    FaultOption,
    JsonOption,
    PacingOption,
    ScenariosOption,
    SeedOption,
    fail,
    progress_bar,
    site_of,
    stdout_console,
    write_json,
)
from racegate.cli.report import report
from racegate.cli.search import explain, fuzz, replay
from racegate.cli.soak import soak
from racegate.device.cuda.driver import NoCudaError
from racegate.device.cuda.pacing import Pacing
from racegate.device.cuda.torch import open_cuda
from racegate.evaluation.matrix import MatrixError
from racegate.faults.catalogue import FaultError, find_fault
from racegate.faults.fault import Fault
from racegate.history.finding import exit_code, signature_of
from racegate.history.outcome import SCHEMA, RunResult, run_object
from racegate.history.schedule import Schedule, ScheduleError, parse_schedule
from racegate.history.witness import Witness, WitnessError, load_witnesses, save
from racegate.jobs.environment import environment_of
from racegate.jobs.fuzz import CampaignError
from racegate.jobs.gate import GateResult, run_gate
from racegate.oracles.paths import ExplainError
from racegate.report.gpu import ReportError
from racegate.report.text import print_gate, print_run
from racegate.repro.minimise import minimise, witness_of
from racegate.repro.search import BUDGET, search
from racegate.scenario.files import explicit, load, load_all, scenario_paths
from racegate.scenario.request_log import scenario_file_for
from racegate.scenario.spec import Scenario, ScenarioError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Reproduce races of asynchronous speculative decoding, or prove their absence.",
)
scenarios_app = typer.Typer(no_args_is_help=True, help="The scenario scripts.")
app.add_typer(faults_app, name="faults")
app.add_typer(scenarios_app, name="scenarios")
app.command()(replay)
app.command()(explain)
app.command()(fuzz)
app.command()(soak)
app.command()(report)
app.command()(ab)

BAD_INPUT = (
    AbError,
    ReportError,
    ScenarioError,
    ScheduleError,
    FaultError,
    CheckError,
    WitnessError,
    CampaignError,
    ExplainError,
    MatrixError,
    NoCudaError,
)


def main() -> None:
    """Entry point."""
    try:
        app()
    except BAD_INPUT as error:
        fail(str(error))


@app.command()
def gate(
    fault: FaultOption = None,
    scenarios: ScenariosOption = Path("scenarios"),
    must_fail: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Witnesses that must still show what they were made for."),
    ] = None,
    explore: Annotated[
        Explore, typer.Option(help="Climb the ladder where a conflict exists, or run eagerly only.")
    ] = Explore.LADDER,
    budget: BudgetOption = BUDGET,
    seed: SeedOption = 0,
    audit: AuditOption = Audit.ON,
    json: JsonOption = None,
) -> None:
    """Run every scenario on the virtual device through all oracles."""
    loaded = load_all(scenario_paths(scenarios))
    witnesses = [] if must_fail is None else load_witnesses(must_fail)
    found = None if fault is None else find_fault(fault)

    def look(checker: Checker, planted: Fault | None) -> RunResult:
        return _look(checker, planted, explore, budget, seed, audit)

    result = _gate_with_progress(loaded, witnesses, look, found, seed)
    if json is not None:
        write_json(json, msgspec.to_builtins(result))
    if json != "-":
        print_gate(stdout_console(), result)
    raise typer.Exit(result.exit_code)


def _gate_with_progress(
    loaded: list[tuple[Path, Scenario]],
    witnesses: list[tuple[Path, Witness]],
    look: Look,
    fault: Fault | None,
    seed: int,
) -> GateResult:
    with progress_bar() as progress:
        task = progress.add_task("gate", total=len(loaded) + len(witnesses))
        return run_gate(
            loaded,
            must_fail=witnesses,
            look=look,
            fault=fault,
            seed=seed,
            on_done=lambda name: progress.update(task, advance=1, description=name),
        )


def _look(
    checker: Checker,
    fault: Fault | None,
    explore: Explore,
    budget: int,
    seed: int,
    audit: Audit,
) -> RunResult:
    is_audited = audit is Audit.ON
    if explore is Explore.EAGER:
        return checker.run(fault=fault, is_audited=is_audited)
    return search(checker, fault=fault, budget=budget, seed=seed, is_audited=is_audited)


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
    seed: SeedOption = 1,
    fault: FaultOption = None,
    hold: Annotated[
        list[str] | None, typer.Option("--hold", metavar="'OP until POINT'", help="A hold.")
    ] = None,
    explore: Annotated[
        Explore, typer.Option(help="One eager run (or the holds given), or the ladder.")
    ] = Explore.EAGER,
    budget: BudgetOption = BUDGET,
    witness: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Minimise what goes wrong and write it as a witness."),
    ] = None,
    device: DeviceOption = DeviceKind.VIRTUAL,
    pacing: PacingOption = Pacing.EAGER,
    audit: AuditOption = Audit.ON,
    json: JsonOption = None,
) -> None:
    """Run one scenario, eagerly, with holds or through the ladder, and judge it."""
    if (scenario is None) == (trace is None):
        fail("give either a scenario file or --trace CSV")
    if hold and explore is not Explore.EAGER:
        fail("--hold says which schedule to run: leave --explore out")
    if device is DeviceKind.CUDA and (explore is not Explore.EAGER or witness is not None):
        fail("searching and minimising step the virtual device: leave --device cuda out")
    site = site_of(device, pacing)
    if scenario is not None:
        loaded, command = load(scenario), f"racegate run {scenario}"
    else:
        assert trace is not None
        loaded, command = _from_log(trace, rows=rows, scale=scale, step_ms=step_ms, seed=seed)
    schedule = Schedule() if hold is None else parse_schedule(hold)
    found = None if fault is None else find_fault(fault)
    checker = Checker(loaded, replay=command, cuda=site)
    if explore is Explore.EAGER:
        result = checker.run(schedule=schedule, fault=found, is_audited=audit is Audit.ON)
    else:
        result = _look(checker, found, explore, budget, seed, audit)
    if json is not None:
        write_json(json, run_object(result))
    if json != "-":
        print_run(stdout_console(), result)
    if witness is not None:
        _write_witness(witness, checker.scenario, result, found, seed=seed)
    raise typer.Exit(exit_code([result.verdict]))


def _from_log(
    trace: Path, *, rows: str, scale: int, step_ms: int, seed: int
) -> tuple[Scenario, str]:
    """A scenario from a log, and the command that runs it again."""
    file = scenario_file_for(trace, rows=rows, scale=scale, step_ms=step_ms, seed=seed)
    command = (
        f"racegate run --trace {trace} --rows {rows} --scale {scale} --step-ms {step_ms} "
        f"--seed {seed}"
    )
    return explicit(file, source=str(trace), folder=trace.parent), command


def _write_witness(
    path: Path, scenario: Scenario, result: RunResult, fault: Fault | None, *, seed: int
) -> None:
    if signature_of(result.findings) is None:
        fail(f"nothing went wrong, so {path} is not written")
    schedule = parse_schedule(list(result.schedule))
    with progress_bar() as progress:
        progress.add_task("minimising", total=None)
        small = minimise(scenario, schedule, fault)
    try:
        save(witness_of(small, fault, title=scenario.title, seed=seed), path)
    except OSError as error:
        fail(f"cannot write {path}: {error}")


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
    device: DeviceOption = DeviceKind.VIRTUAL,
    part: Annotated[BenchPart, typer.Option(help="On CUDA: what to measure.")] = BenchPart.ALL,
    json: JsonOption = None,
) -> None:
    """Measure schedules per second on one core, split into engine, recording and oracles; on CUDA
    the kernels beside the copy bandwidth of the card, the engine at depth 1 and 2, and what
    recording and holding cost there.
    """
    if device is DeviceKind.CUDA:
        result = _bench_cuda(part, seconds)
    elif part is not BenchPart.ALL:
        fail("--part says what to measure on a GPU: add --device cuda")
    else:
        result = run_bench(seconds=seconds)
    if json is not None:
        write_json(json, {"schema": SCHEMA, **msgspec.to_builtins(result)})
    if json != "-":
        table = Table("name", "value", "unit", "detail")
        for entry in result.results:
            table.add_row(entry.name, f"{entry.value:.3g}", entry.unit, entry.detail)
        stdout_console().print(table)
    raise typer.Exit(3 if has_failed(result.results) else 0)


def _bench_cuda(part: BenchPart, seconds: float) -> BenchResult:
    """Job by job; every figure is on standard error as soon as it is known."""
    jobs = cuda_jobs(open_cuda(), part=part, seconds=seconds)
    entries: list[BenchEntry] = []
    progress = progress_bar()
    # A thread that draws would take its time from the steps that are measured.
    progress.live.auto_refresh = False
    with progress:
        task = progress.add_task("bench", total=len(jobs))
        for job in jobs:
            progress.update(task, description=job.name, refresh=True)
            for entry in run_job(job):
                entries.append(entry)
                figure = f"{entry.name} {entry.value:.6g} {entry.unit}  ({entry.detail})"
                progress.console.print(figure, markup=False, highlight=False, soft_wrap=True)
            progress.advance(task)
    return BenchResult(environment=environment_of("cuda"), results=tuple(entries))
