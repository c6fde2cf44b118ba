"""The command gate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.table import Column, Table

from racegate.check.checker import Checker
from racegate.check.repro.search import BUDGET
from racegate.cli.ci import (
    BaselineOption,
    ChangedOption,
    CiOptions,
    GithubOption,
    JunitOption,
    SarifOption,
    UpdateOption,
    beside_baseline,
    write_reports,
)
from racegate.cli.options import (
    AllCoresOption,
    Audit,
    AuditOption,
    BudgetOption,
    Explore,
    FaultOption,
    JsonOption,
    ScriptsOption,
    SeedOption,
    StrictOption,
    TimeoutOption,
    benign_of,
    cores,
    folder_of_scripts,
    loaded_scripts,
    progress_bar,
    say,
    stdout_console,
    tell,
)
from racegate.cli.pictures import (
    HtmlOption,
    PictureFiles,
    SvgOption,
    TraceOutOption,
    draw,
)
from racegate.faults.catalogue import find_fault
from racegate.history.exit_code import ExitCode
from racegate.history.finding import Benign, Verdict
from racegate.history.witness import load_witnesses
from racegate.jobs.gate import GateJudge, GateResult, GateSpec, run_gate
from racegate.jobs.pools.time_limit import TIMEOUT_S
from racegate.jobs.selection import changed_files
from racegate.jobs.stopping import StoppedError, known_result
from racegate.report.text import print_gate
from racegate.report.timeline.drawing import Examined, seen_in
from racegate.scenario.shipped import shipped_scripts

app = typer.Typer(add_completion=False)

MustFailOption = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Witnesses that must still show what they were made for."),
]
SelectOption = Annotated[
    str | None,
    typer.Option(
        "-k",
        metavar="EXPRESSION",
        help="Only scenarios and witnesses whose names contain a word, as in "
        "'align and not (offload or graph)'.",
    ),
]
ListOption = Annotated[
    bool | None, typer.Option("--list", help="Run nothing: say what would be run.")
]


@app.command()
def gate(
    fault: FaultOption = None,
    scenarios: ScriptsOption = None,
    must_fail: MustFailOption = None,
    select: SelectOption = None,
    only_list: ListOption = None,
    workers: AllCoresOption = None,
    explore: Annotated[
        Explore, typer.Option(help="Climb the ladder where a conflict exists, or run eagerly only.")
    ] = Explore.LADDER,
    budget: BudgetOption = BUDGET,
    seed: SeedOption = 0,
    audit: AuditOption = Audit.ON,
    strict: StrictOption = None,
    timeout: TimeoutOption = TIMEOUT_S,
    changed: ChangedOption = None,
    baseline: BaselineOption = None,
    update_baseline: UpdateOption = None,
    junit: JunitOption = None,
    sarif: SarifOption = None,
    github: GithubOption = None,
    svg: SvgOption = None,
    html: HtmlOption = None,
    trace_out: TraceOutOption = None,
    json: JsonOption = None,
) -> None:
    """Run every scenario on the virtual device through all oracles. The result is the same for any
    number of workers.
    """
    ci = CiOptions(
        junit=junit,
        sarif=sarif,
        is_github=bool(github),
        is_annotated=json != "-",
        baseline=baseline,
        is_update=bool(update_baseline),
    )
    ci.check()
    given = _chosen(_given(scenarios, must_fail), changed, select)
    if only_list:
        _print_list(given, json)
        return
    if fault is not None:
        find_fault(fault)
    if not given.names:
        say(f"no scenario or witness differs from {changed}, nor what they are run with")
        raise typer.Exit(ExitCode.CLEAN)
    look = GateJudge(
        budget=budget if explore is Explore.LADDER else None,
        seed=seed,
        is_audited=audit is Audit.ON,
    )
    run = partial(run_gate, given, look=look, fault=fault, seed=seed, timeout_s=timeout)
    wanted = PictureFiles(svg, html, trace_out)
    shown = _Shown(benign=benign_of(strict), ci=ci, json=json, wanted=wanted)
    raise typer.Exit(_gated(partial(run, workers=workers or cores()), given, shown))


def _gated(run: Callable[..., GateResult], given: GateSpec, shown: _Shown) -> int:
    """Runs the gate behind a bar, and tells what came of it, or what is known when it is stopped.
    Raises StoppedError.
    """
    with progress_bar() as progress:
        task = progress.add_task("gate", total=len(given.names))
        try:
            found = run(on_done=lambda name: progress.update(task, advance=1, description=name))
        except StoppedError as error:
            progress.stop()
            # Half a gate is no baseline, nor beside one, and nobody looked for what to draw.
            half = replace(shown, ci=shown.ci._replace(baseline=None), wanted=PictureFiles())
            half.show(known_result(error, GateResult), given, None)
            raise
    return shown.show(found, given, _first_seen(given, found))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """How the result is told."""

    benign: Benign
    ci: CiOptions
    json: str | None
    wanted: PictureFiles

    def show(self, found: GateResult, given: GateSpec, seen: Examined | None) -> int:
        """Tells it, draws what was looked at, and gives the exit code."""
        judged = msgspec.structs.replace(found, benign=self.benign)
        result = beside_baseline(judged, self.ci)
        shown = {} if seen is None else {seen.judged.result.scenario: seen.shown}
        tell(self.json, result, lambda: print_gate(stdout_console(), result, shown))
        write_reports(result, given, self.ci)
        draw(self.wanted, seen)
        return result.exit_code


def _given(named: Path | None, must_fail: Path | None) -> GateSpec:
    """Scripts that nobody named, as they come with racegate, bring their witnesses along."""
    scripts = folder_of_scripts(named)
    if named is None and must_fail is None and scripts == shipped_scripts():
        must_fail = scripts / "witnesses"
    return GateSpec(
        scenarios=tuple(loaded_scripts(scripts)),
        must_fail=() if must_fail is None else tuple(load_witnesses(must_fail)),
    )


def _chosen(given: GateSpec, changed: str | None, select: str | None) -> GateSpec:
    """What of it differs from a commit, and has the words of an expression."""
    if changed is not None:
        given = given.among(changed_files(changed))
    return given if select is None else given.selected(select)


def _first_seen(given: GateSpec, result: GateResult) -> Examined | None:
    """The first scenario with a finding, run again to be looked at: one defect shows in many. One
    in which it matters comes before one in which it does not.
    """
    if result.verdict is Verdict.BROKEN_HARNESS:
        return None  # what it would run again may be what is broken
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
    keys = ("kind", "name", "file")
    table = Table("kind", Column("name", no_wrap=True), Column("file", overflow="fold"))
    for row in rows:
        table.add_row(*row)
    found = [dict(zip(keys, row, strict=True)) for row in rows]
    tell(json, found, lambda: stdout_console().print(table))
