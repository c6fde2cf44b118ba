"""The commands of `racegate vllm` and `racegate sglang`: unmodified releases, without a GPU."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Annotated

import msgspec
import typer

from racegate.cli.ci import (
    CiOptions,
    VerboseOption,
    detail_of,
    ratchet_of,
    with_ci,
    write_checked,
)
from racegate.cli.foreign.changed import ChangedOption, Loaded, changed_only
from racegate.cli.foreign.pictures import (
    WitnessOf,
    write_causes,
    write_results_page,
    write_run_trace,
)
from racegate.cli.foreign.searching import search_target
from racegate.cli.foreign.selection import ExceptOption, fitting, without
from racegate.cli.help.named import ScenarioArgument
from racegate.cli.options import (
    HoldOption,
    JsonOption,
    LogOption,
    ScriptsOption,
    StrictOption,
    WitnessesOption,
    benign_of,
    fail,
    folder_of_scripts,
    loaded_scripts_for,
    say_written,
    stdout_console,
    tell,
)
from racegate.cli.pictures import HtmlOption, OutOption, TraceOutOption
from racegate.cli.sets import CampaignOptions, campaign_options, with_set
from racegate.history.exit_code import ExitCode
from racegate.history.finding import Benign, Finding, exit_code
from racegate.history.gates.results import gated
from racegate.history.outcome import RunResult
from racegate.history.schedule import parse_holds
from racegate.interpose.errors import BadInput
from racegate.jobs.foreign.bases import Bases, base_cell, content_of
from racegate.jobs.foreign.beside import ComparedRun, ResultPair, compare, compared_run
from racegate.jobs.foreign.draws import RequestDraw, ScenarioDraw
from racegate.jobs.foreign.opened import TargetOptions
from racegate.jobs.foreign.releases import (
    WORKERS,
    OpenedEngine,
    ReleaseCell,
    ReopenedEngine,
    in_threads,
    kind_of,
    open_release,
    workers_of,
)
from racegate.jobs.stopping import StoppedError, done_of
from racegate.report.ci.failing import checked_results
from racegate.report.targets.releases import print_engine_verdict
from racegate.report.targets.results import Reasons, print_comparison, print_target_gate
from racegate.scenario.errors import BadInputError
from racegate.scenario.files import load_for, script_file
from racegate.scenario.spec import Scenario
from racegate.scenario.untrusted.text import many
from racegate.targets.common.client import RUN_S
from racegate.targets.common.judge import RUNS_MAX, ReleaseVerdict, judge, judge_under, lost_verdict
from racegate.targets.common.result import replay_command, result_of
from racegate.targets.common.wire import ReleaseRun
from racegate.targets.common.witnesses.witness import (
    ReleaseWitness,
    every_witness_of,
    witnesses_of,
    write_witnesses,
)

AgainstOption = Annotated[
    str | None,
    typer.Option(
        metavar="BASE",
        help="Compare with this release, or this checkout: only what differs is a finding.",
    ),
]
WorkersOption = Annotated[
    int | None,
    typer.Option(
        "--workers",
        min=1,
        max=64,
        show_default=f"the cores, at most {WORKERS}",
        help="So much is judged at a time, each in a fork of the started engine.",
    ),
]
ExitFirstOption = Annotated[
    bool | None,
    typer.Option("--exitfirst", "-x", help="Judge no further scenario behind the first finding."),
]
JudgedScript = tuple[Path, Scenario, tuple[ComparedRun | None, ReleaseVerdict]]
JudgeEach = Callable[[Loaded], Iterator[JudgedScript]]
STOPPED = "not judged: the gate was stopped"
RunsOption = Annotated[int, typer.Option("--runs", min=0, help="Runs under holds at most.")]


def run(
    scenario: ScenarioArgument,
    cell: ReleaseCell,
    *,
    hold: HoldOption = None,
    against: AgainstOption = None,
    runs: RunsOption = RUNS_MAX,
    strict: StrictOption = None,
    witness: WitnessesOption = None,
    log: LogOption = None,
    html: HtmlOption = None,
    trace_out: TraceOutOption = None,
    json: JsonOption = None,
) -> None:
    """Run one scenario, eagerly and with the landings of what races, or with holds; judge it."""
    if hold is not None and against is not None:
        fail("--hold is for one version: it cannot be compared with --against")
    packaging = kind_of(cell).packaging
    loaded = load_for(packaging.title, script_file(scenario, packaging.name))
    base = None
    if (bases := _bases(cell, against, runs, log)) is not None:
        with bases.engine:
            base = bases.of(loaded)
    with started(cell, log) as opened:
        if hold is None:
            judged = _judged(opened, loaded, runs)
        else:
            pulses = opened.sensitivity()
            judged = judge_under(
                opened.runs, loaded, opened.cell, parse_holds(hold), sensitivity=pulses
            )
        title = f"{loaded.name} on {opened.cell.title}"
        write_run_trace(trace_out, partial(opened.runs.run, loaded), title)
    _write(witness, judged, loaded)
    result = _beside(judged, str(scenario), against, base)
    write_results_page(html, [result])
    tell(json, result, lambda: _print_judged(judged, result, str(scenario), {}))
    raise typer.Exit(_code_of(judged, result, benign_of(strict)))


@with_ci
def gate(
    cell: ReleaseCell,
    *,
    scenarios: ScriptsOption = None,
    left_out: ExceptOption = None,
    against: AgainstOption = None,
    changed: ChangedOption = None,
    runs: RunsOption = RUNS_MAX,
    workers: WorkersOption = None,
    exit_first: ExitFirstOption = None,
    strict: StrictOption = None,
    witness: WitnessesOption = None,
    log: LogOption = None,
    html: HtmlOption = None,
    out: OutOption = None,
    ci: CiOptions,
    verbose: VerboseOption = None,
    json: JsonOption = None,
) -> None:
    """Judge every scenario of a folder on an engine that is started once.

    A scenario of a folder that is named and that it cannot run leaves the gate INCONCLUSIVE (exit
    code 4); of racegate's own those for other settings are left out, which is said. Beside a base
    what both have in common is no finding, and what neither can run is left out.
    """
    if exit_first and ci.known is not None:
        fail("--exitfirst ends a gate early: it cannot be held against a file of known findings")
    judged: list[tuple[Path, ReleaseVerdict]] = []
    loaded, count = _scripts_for(cell, scenarios, left_out), workers_of(workers)
    bases = _bases(cell, against, runs, log, count)
    shown, pairs = list[RunResult](), list[ResultPair]()
    reasons, benign = ci.reasons(), benign_of(strict)
    stop: KeyboardInterrupt | None = None
    try:
        with _judging(bases, _reopened(cell, runs, log, count), count) as judge_each:
            if changed:
                loaded = changed_only(loaded, cell, bases.engine if bases else None)
            for place, scenario, (base, found) in judge_each(loaded):
                judged.append((place, found))
                shown.append(_beside(found, str(place), against, base, pairs))
                pairs += [(base.result, shown[-1])] if base else []
                _write(witness, found, scenario)
                is_printed = json != "-" and bool(verbose)
                _tell_judged(found, shown[-1], str(place), reasons, is_printed=is_printed)
                if exit_first and _code_of(found, shown[-1], benign) is ExitCode.FINDING:
                    say_progress(f"{len(loaded) - len(judged)} scenarios are left: --exitfirst")
                    loaded = loaded[: len(judged)]
                    break
    except KeyboardInterrupt as error:
        if not judged:
            raise
        stop, ci = error, ci._replace(known=None)  # half a gate is no baseline, nor beside one
        for place, scenario in loaded[len(judged) :]:
            judged.append((place, lost_verdict(cell, scenario, STOPPED)))
            shown.append(result_of(judged[-1][1], str(place)))
    ratchet = ratchet_of(shown, ci, benign)
    results = gated(shown, ratchet, benign)
    files = {one.scenario: str(place) for place, one in judged}
    witness_of = _witnesses_among([found for _, found in judged], [one for _, one in loaded])
    written = write_causes(out, results.standing, witness_of, benign=benign)
    show = partial(print_target_gate, benign=benign, detail=detail_of(verbose), told=tuple(files))
    show = partial(show, written=written)
    tell(json, results, lambda: show(stdout_console(), results))
    checked = checked_results(shown, files, code=results.exit_code, benign=benign, ratchet=ratchet)
    write_checked(checked, results.word, ci, json)
    write_results_page(html, shown)
    if stop is None:
        raise typer.Exit(results.exit_code)
    left = [one.scenario for one in shown if one.message == STOPPED]
    raise StoppedError(stop, done=done_of(len(shown) - len(left), left)) from stop


@with_set("options", campaign_options)
def search(
    cell: ReleaseCell,
    options: CampaignOptions,
    *,
    draw: Annotated[
        RequestDraw,
        typer.Option(help="features: with chunks, prefixes, sampling and grammars."),
    ] = RequestDraw.REQUESTS,
    runs: RunsOption = RUNS_MAX,
    strict: StrictOption = None,
    log: LogOption = None,
    json: JsonOption = None,
) -> None:
    """Draw scenarios from a seed and judge each with its landings; keep a witness of each kind of
    finding, in the smallest scenario that shows it.
    """
    how = TargetOptions(runs_max=runs, log=None if log is None else str(log))
    what = ScenarioDraw(draw)
    search_target(cell, how, options, benign=benign_of(strict), json=json, draw=what)


@contextmanager
def started(
    cell: ReleaseCell, log: Path | None, *, run_s: float = RUN_S, count: int = 1
) -> Iterator[OpenedEngine]:
    """The engine of a cell. Raises BadInputError if it cannot be started.

    run_s: seconds that one run may take; count: of it and its siblings
    """
    try:
        with open_release(cell, log=log, run_s=run_s, count=count) as opened:
            title = kind_of(cell).packaging.title
            say_progress(f"{title} started in {opened.engine.start_s:.0f} s")
            yield opened
    except BadInput as error:
        raise BadInputError(str(error)) from error


def _judged(opened: OpenedEngine, scenario: Scenario, runs: int) -> ReleaseVerdict:
    return judge(
        opened.runs,
        scenario,
        opened.cell,
        sensitivity=opened.sensitivity(),
        runs_max=runs,
        on_run=say_runs,
    )


def _reopened(cell: ReleaseCell, runs: int, log: Path | None, count: int = 1) -> ReopenedEngine:
    """An engine of a cell, for a gate. runs: under holds at most, of one scenario; count: of it and
    its siblings
    """
    opened = partial(started, cell, log, count=count)
    return ReopenedEngine(cell, opened, lambda on, what: _judged(on, what, runs))


@contextmanager
def _judging(bases: Bases | None, engine: ReopenedEngine, count: int) -> Iterator[JudgeEach]:
    """Scripts on the base, if there is one, and on the engine that is judged, so many at a time."""

    def both(scenario: Scenario) -> tuple[ComparedRun | None, ReleaseVerdict]:
        base = None if bases is None else bases.of(scenario)
        return base, engine.judge(scenario)

    threads = in_threads(count, ReleaseRun, ComparedRun)
    with threads as in_order, bases.engine if bases else nullcontext(), engine:

        def judge_each(loaded: Loaded) -> Iterator[JudgedScript]:
            engine.opened()
            told = in_order(both, (scenario for _, scenario in loaded))
            return ((*script, one) for script, one in zip(loaded, told, strict=True))

        yield judge_each


def _bases(
    cell: ReleaseCell, against: str | None, runs: int, log: Path | None, count: int = 1
) -> Bases | None:
    """What scenarios are compared with, if there is a base."""
    if against is None:
        return None
    kind_of(cell).packaging.environment_of(cell.release, checkout=cell.checkout)  # or it is refused
    base = _reopened(base_cell(cell, against), runs, log, count)
    return Bases(base, content_of(base.cell), settings=(runs,))


def _beside(
    found: ReleaseVerdict,
    place: str,
    against: str | None,
    base: ComparedRun | None,
    others: Sequence[ResultPair] = (),
) -> RunResult:
    """The result, beside that of the base if there is one. place: of the script, for commands;
    against: the base as it was given; others: of other scenarios
    """
    result = result_of(found, place)
    if against is None or base is None:
        return result
    beside = compare(base, compared_run(found, result), others=others)
    command = f"{replay_command(found, place, ())} --against {quote(against)} --runs 0"
    return msgspec.structs.replace(result, comparison=beside.replayed_by(command))


def _scripts_for(cell: ReleaseCell, scenarios: Path | None, left_out: list[str] | None) -> Loaded:
    """Those of a folder that is named, else racegate's own that the cell can run."""
    packaging = kind_of(cell).packaging
    folder = folder_of_scripts(scenarios, packaging.name)
    loaded = without(loaded_scripts_for(packaging.title, folder), left_out)
    return loaded if scenarios is not None else fitting(loaded, cell.cannot_run)


def _code_of(found: ReleaseVerdict, result: RunResult, benign: Benign) -> ExitCode:
    """What one scenario alone ends with."""
    if result.comparison is not None:
        return result.comparison.code
    return exit_code([found.verdict], benign=benign)


def _tell_judged(
    found: ReleaseVerdict, result: RunResult, place: str, reasons: Reasons, *, is_printed: bool
) -> None:
    """What is known of one scenario, or a line of it while the others are judged."""
    if is_printed:
        _print_judged(found, result, place, reasons)
    else:
        text = found.text if result.comparison is None else result.comparison.text
        say_progress(f"{found.scenario}: {text}")


def _print_judged(found: ReleaseVerdict, result: RunResult, place: str, reasons: Reasons) -> None:
    if result.comparison is None:
        print_engine_verdict(stdout_console(), found, place)
    else:
        print_comparison(stdout_console(), result, reasons)


def _write(folder: Path | None, judged: ReleaseVerdict, scenario: Scenario) -> None:
    """Landings that do harm, if they are asked for."""
    if folder is not None:
        kind = kind_of(judged.cell).witness
        say_written(write_witnesses(folder, witnesses_of(kind, judged, scenario)))


def _witnesses_among(judged: Sequence[ReleaseVerdict], scenarios: Sequence[Scenario]) -> WitnessOf:
    """Of what was judged, the witness of each finding: of a value that a change observes otherwise
    than its base there is none.
    """
    known = {found.scenario: (found, one) for found, one in zip(judged, scenarios, strict=True)}

    def witness_of(run: RunResult, finding: Finding) -> ReleaseWitness | None:
        found, scenario = known[run.scenario]
        every = every_witness_of(kind_of(found.cell).witness, found, scenario)
        return next((one for one in every if one.known_as == finding.signature), None)

    return witness_of


def say_runs(runs: int) -> None:
    """Every tenth run under holds."""
    if runs % 10 == 0:
        say_progress(f"{many(runs, 'run')} under holds")


def say_progress(text: str) -> None:
    """How long work goes on, on standard error."""
    print(text, file=sys.stderr, flush=True)
