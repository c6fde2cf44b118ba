"""The command gate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
import typer
from rich.table import Column, Table

from racegate.check.repro.minimise import as_found
from racegate.check.repro.search import BUDGET
from racegate.cli.ci import (
    ChangedOption,
    CiOptions,
    NoStoreOption,
    VerboseOption,
    detail_of,
    ratchet_of,
    with_ci,
    write_reports,
)
from racegate.cli.help.named import FaultOption
from racegate.cli.options import (
    AllCoresOption,
    Audit,
    AuditOption,
    BudgetOption,
    Explore,
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
    OutOption,
    PictureFiles,
    SvgOption,
    TraceOutOption,
    draw,
    write_cause,
)
from racegate.faults.catalogue import find_fault
from racegate.history.exit_code import ExitCode
from racegate.history.finding import Benign, Verdict
from racegate.history.witness import Witness, load_witnesses
from racegate.jobs.causes import CauseLook, look_into
from racegate.jobs.gate import GateJudge, GateResult, GateSpec, run_gate
from racegate.jobs.pools.time_limit import TIMEOUT_S
from racegate.jobs.selection import changed_files
from racegate.jobs.stopping import StoppedError, known_result
from racegate.jobs.stores.failures import LastFailures, last_failures, replay_scenarios
from racegate.report.causes import (
    BLOCKS_MAX,
    ToldCause,
    sight_text,
    told_of_account,
    told_plainly,
)
from racegate.report.finding.drawing import Examined, page_of, seen_in
from racegate.report.text import GateView, print_gate, standing_findings
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
@with_ci
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
    no_store: NoStoreOption = None,
    *,
    ci: CiOptions,
    svg: SvgOption = None,
    html: HtmlOption = None,
    trace_out: TraceOutOption = None,
    out: OutOption = None,
    verbose: VerboseOption = None,
    json: JsonOption = None,
) -> None:
    """Run every scenario on the virtual device through all oracles. The result is the same for any
    number of workers.
    """
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
    shown = _Shown(
        benign=benign_of(strict),
        ci=ci,
        json=json,
        wanted=wanted,
        detail=detail_of(verbose),
        budget=look.budget,
        seed=seed,
        out=out,
    )
    if not no_store:
        shown = replace(shown, kept=_begun_again(given, fault, timeout))
    raise typer.Exit(_gated(partial(run, workers=workers or cores()), given, shown))


class _Kept(NamedTuple):
    """The failures of the last run, and the files of those that were replayed."""

    failures: LastFailures
    replayed: tuple[Path, ...]


def _begun_again(given: GateSpec, fault: str | None, timeout_s: float) -> _Kept:
    """The last failures first: who repaired one knows it before all the rest is run."""
    folders = sorted({str(path.resolve().parent) for path, _ in given.scenarios})
    failures = last_failures(["gate", fault or "", *folders], say)
    scenarios = [scenario for _, scenario in given.scenarios]
    return _Kept(failures, replay_scenarios(failures, scenarios, timeout_s=timeout_s))


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
            half = replace(shown, ci=shown.ci._replace(known=None), wanted=PictureFiles())
            half.show(known_result(error, GateResult), given, is_looked_into=False)
            raise
    # What would be run again may be what is broken.
    return shown.show(found, given, is_looked_into=found.verdict is not Verdict.BROKEN_HARNESS)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """How the result is told. budget: of a search for a run in which a user sees what is wrong

    out: a folder for a witness and a page of each cause
    kept: what this run's failures take the place of, None if they are not kept
    """

    benign: Benign
    ci: CiOptions
    json: str | None
    wanted: PictureFiles
    detail: GateView
    budget: int | None
    seed: int
    out: Path | None
    kept: _Kept | None = None

    def show(self, found: GateResult, given: GateSpec, *, is_looked_into: bool) -> int:
        """Tells it, draws the first cause, and gives the exit code."""
        judged = msgspec.structs.replace(found, benign=self.benign)
        is_sound = judged.verdict is not Verdict.BROKEN_HARNESS
        ratchet = ratchet_of(judged.scenarios, self.ci, self.benign) if is_sound else None
        result = msgspec.structs.replace(judged, baseline=ratchet)
        causes = None
        seen: list[Examined | None] = []
        shown = {}
        if is_looked_into:
            standing = standing_findings(result)[:BLOCKS_MAX]
            looked = [
                look_into(shared, given, budget=self.budget, seed=self.seed) for shared in standing
            ]
            seen = [seen_in(one.checker, one.result, one.fault) for one in looked]
            causes = [self._told(*pair) for pair in zip(looked, seen, strict=True)]
            self._keep([one for one, sight in zip(looked, seen, strict=True) if sight is not None])
            shown = {one.judged.result.scenario: one.shown for one in seen if one is not None}
        show = partial(print_gate, causes=causes, detail=self.detail, shown=shown)
        tell(self.json, result, lambda: show(stdout_console(), result))
        write_reports(result, given, self.ci, self.json)
        draw(self.wanted, seen[0] if seen else None)
        return result.exit_code

    def _keep(self, looked: Sequence[CauseLook]) -> None:
        """For the next run, which begins with them."""
        if self.kept is not None:
            found = [_witness_of(one, seed=self.seed) for one in looked]
            self.kept.failures.keep(found, self.kept.replayed)

    def _told(self, looked: CauseLook, seen: Examined | None) -> ToldCause:
        """One cause, with what was written of it."""
        if seen is None:
            return told_plainly(looked.shared)
        told = told_of_account(
            looked.shared, seen.found.account, looked.result.schedule, sight_text(looked.sight)
        )
        if self.out is None:
            return told
        witness = _witness_of(looked, seed=self.seed)
        files = write_cause(self.out, looked.shared.signature, page_of(seen), witness)
        return told._replace(files=files)


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


def _witness_of(looked: CauseLook, *, seed: int) -> Witness:
    scenario = looked.checker.scenario
    return as_found(scenario, looked.result, looked.fault, title=scenario.title, seed=seed)


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
