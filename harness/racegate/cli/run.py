"""The command run."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from racegate.check.checker import Checker
from racegate.check.repro.minimise import gone_on
from racegate.check.repro.search import BUDGET, FailureSighting, search
from racegate.check.repro.unrealised import with_reasons
from racegate.cli.help.named import AnyScenarioArgument, FaultOption
from racegate.cli.options import (
    Audit,
    AuditOption,
    BudgetOption,
    DeviceOption,
    ExecutionDevice,
    Explore,
    JsonOption,
    PacingOption,
    SeedOption,
    StrictOption,
    TimeoutOption,
    benign_of,
    counted,
    fail,
    place_to_write,
    say,
    site_of,
    stdout_console,
    tell,
)
from racegate.cli.pictures import (
    HtmlOption,
    PictureFiles,
    SvgOption,
    TraceOutOption,
    draw,
    shown_of,
)
from racegate.device.cuda.pacing import Pacing
from racegate.faults.catalogue import find_fault
from racegate.faults.fault import Fault
from racegate.history.finding import exit_code, signature_of
from racegate.history.outcome import RunResult, unaudited
from racegate.history.schedule import Schedule, parse_schedule
from racegate.history.witness import save
from racegate.jobs.pools.time_limit import TIMEOUT_S, limited_time
from racegate.jobs.stopping import StoppedError
from racegate.report.causes import sight_text
from racegate.report.finding.drawing import seen_in
from racegate.report.text import print_run
from racegate.scenario.files import explicit, load, script_file
from racegate.scenario.request_log import scenario_file_for
from racegate.scenario.spec import OwnScenario
from racegate.scenario.untrusted.text import many

app = typer.Typer(add_completion=False)


@app.command()
def run(
    scenario: AnyScenarioArgument = None,
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
        typer.Option(
            metavar="FILE",
            help="Minimise what goes wrong and write it as a witness.",
            callback=place_to_write,
        ),
    ] = None,
    device: DeviceOption = ExecutionDevice.VIRTUAL,
    pacing: PacingOption = Pacing.EAGER,
    audit: AuditOption = Audit.ON,
    strict: StrictOption = None,
    timeout: TimeoutOption = TIMEOUT_S,
    svg: SvgOption = None,
    html: HtmlOption = None,
    trace_out: TraceOutOption = None,
    json: JsonOption = None,
) -> None:
    """Run one scenario, eagerly, with holds or through the ladder, and judge it."""
    if (scenario is None) == (trace is None):
        fail("give either a scenario, by its file or its name, or --trace CSV")
    if hold and explore is not Explore.EAGER:
        fail("--hold says which schedule to run: leave --explore out")
    if device is ExecutionDevice.CUDA and (explore is not Explore.EAGER or witness is not None):
        fail("searching and minimising step the virtual device: leave --device cuda out")
    site = site_of(device, pacing)
    if scenario is not None:
        loaded, command = load(script_file(scenario)), f"racegate run {quote(str(scenario))}"
    else:
        assert trace is not None
        loaded, command = _from_log(trace, rows=rows, scale=scale, step_ms=step_ms, seed=seed)
    schedule = Schedule() if hold is None else parse_schedule(hold)
    found, is_audited = None if fault is None else find_fault(fault), audit is Audit.ON
    with limited_time(timeout, f"running {loaded.name}"):
        checker = Checker(loaded, replay=command, cuda=site)
        judged = sight = None
        if explore is Explore.EAGER:
            judged = checker.run_judged(schedule=schedule, fault=found, is_audited=is_audited)
            result = with_reasons(checker, judged.result, found)
        else:
            searched = partial(_searched, checker, found, budget=budget, seed=seed)
            result, sight = searched(is_audited=is_audited)
    result = result if is_audited or device is ExecutionDevice.CUDA else unaudited(result)
    seen = seen_in(checker, result, found, judged)
    show = partial(print_run, shown=shown_of(seen), further=sight_text(sight))
    tell(json, result, lambda: show(stdout_console(), result))
    draw(PictureFiles(svg, html, trace_out), seen)
    if witness is not None:
        _write_witness(witness, checker.scenario, result, found, seed=seed)
    raise typer.Exit(exit_code([result.verdict], benign=benign_of(strict)))


def _searched(
    checker: Checker, fault: Fault | None, *, budget: int, seed: int, is_audited: bool
) -> tuple[RunResult, FailureSighting | None]:
    """The ladder behind a bar, and on to a run in which a user sees what is wrong."""
    climb = partial(search, checker, fault=fault, budget=budget, seed=seed, is_audited=is_audited)
    with counted("searching schedules", total=budget) as on_run:
        result = climb(on_run=on_run)
    return gone_on(checker, result, fault, budget=budget, seed=seed)


def _from_log(
    trace: Path, *, rows: str, scale: int, step_ms: int, seed: int
) -> tuple[OwnScenario, str]:
    """A scenario from a log, and the command that runs it again."""
    file = scenario_file_for(trace, rows=rows, scale=scale, step_ms=step_ms, seed=seed)
    command = (
        f"racegate run --trace {trace} --rows {rows} --scale {scale} --step-ms {step_ms} "
        f"--seed {seed}"
    )
    return explicit(file, source=str(trace), folder=trace.parent), command


def _write_witness(
    path: Path, scenario: OwnScenario, result: RunResult, fault: Fault | None, *, seed: int
) -> None:
    """As it was found, and then minimal: what breaks minimising leaves the former."""
    from racegate.check.repro.minimise import RUNS_MAX, as_found, minimise, witness_of

    if signature_of(result.findings) is None:
        fail(f"nothing went wrong, so {path} is not written")
    replay = f"racegate replay {quote(str(path))}"
    schedule = parse_schedule(list(result.schedule))
    save(as_found(scenario, result, fault, title=scenario.title, seed=seed), path)
    try:
        with counted("minimising", total=RUNS_MAX) as on_run:
            small = minimise(scenario, schedule, fault, on_run=on_run)
    except KeyboardInterrupt as stop:
        done = f"{path} is written, not minimised: {replay}"
        raise StoppedError(stop, done=done) from stop
    witness = witness_of(small, fault, title=scenario.title, seed=seed)
    save(witness, path)
    whole = "" if small.is_minimal else ", perhaps not the smallest"
    requests, runs = many(len(witness.scenario.requests), "request"), many(small.runs, "run")
    say(f"wrote {path}: {requests}, {runs} to minimise it{whole}; {replay}")
    for hold in witness.holds or ("none: it shows when every operation completes at once",):
        say(f"minimal hold: {hold}")
