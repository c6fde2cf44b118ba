"""The commands sglang setup, run and gate: the overlap scheduler of unmodified releases."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from racegate.cli.ci import JunitOption, SarifOption, write_checked
from racegate.cli.foreign.pictures import write_engine_page
from racegate.cli.foreign.vllm import (
    LogOption,
    PathOption,
    ReleaseOption,
    RunsOption,
    checkout_of,
    tell_progress,
)
from racegate.cli.options import (
    JsonOption,
    ScriptsOption,
    StrictOption,
    WitnessesOption,
    benign_of,
    folder_of_scripts,
    loaded_scripts_for,
    say,
    stdout_console,
    write_json,
)
from racegate.cli.pictures import HtmlOption
from racegate.history.finding import exit_code
from racegate.history.outcome import gated
from racegate.history.schedule import parse_holds
from racegate.interpose.errors import BadInput
from racegate.report.targets.releases import checked_engine, print_engine_gate, print_engine_verdict
from racegate.scenario.errors import BadInputError
from racegate.scenario.files import load_for
from racegate.targets.common.judge import judge, judge_under
from racegate.targets.common.result import result_of
from racegate.targets.common.search import RUNS_MAX
from racegate.targets.common.witnesses.witness import witnesses_of, write_witnesses
from racegate.targets.sglang.cell import SchedulerCell
from racegate.targets.sglang.engine import WithPlain, open_plain_scheduler
from racegate.targets.sglang.environment import set_up
from racegate.targets.sglang.wire import ModelKind, Repair
from racegate.targets.sglang.witness import SchedulerWitness

app = typer.Typer(no_args_is_help=True, help="Judge unmodified SGLang releases, without a GPU.")

ModelOption = Annotated[ModelKind, typer.Option("--model", help="What is served.")]
WithoutOption = Annotated[
    list[Repair] | None,
    typer.Option("--without", help="Switch a repair of sglang#24221 off; can be repeated."),
]


@app.command()
def setup(release: ReleaseOption, log: LogOption = None) -> None:
    """Install a release and its torch into the cache directory, and start it once.

    What is there already is kept.
    """
    try:
        set_up(release, lambda text: print(text, file=sys.stderr, flush=True))
    except BadInput as error:
        raise BadInputError(str(error)) from error
    with started(SchedulerCell(release=release, model=ModelKind.HYBRID), log):
        pass


@app.command()
def run(
    scenario: Annotated[Path, typer.Argument(metavar="SCENARIO", help="A scenario file.")],
    release: ReleaseOption,
    path: PathOption = None,
    model: ModelOption = ModelKind.HYBRID,
    without: WithoutOption = None,
    hold: Annotated[
        list[str] | None, typer.Option("--hold", metavar="'OP until ACCESS'", help="A hold.")
    ] = None,
    runs: RunsOption = RUNS_MAX,
    strict: StrictOption = None,
    witness: WitnessesOption = None,
    log: LogOption = None,
    html: HtmlOption = None,
    json: JsonOption = None,
) -> None:
    """Run one scenario, eagerly and with the landings of what races, or with holds; judge it."""
    loaded = load_for("SGLang", scenario)
    cell = cell_of(release, path, model, without)
    with started(cell, log) as engine:
        if hold is None:
            judged = judge(engine, loaded, cell, runs_max=runs, on_run=tell_progress)
        else:
            judged = judge_under(engine, loaded, cell, parse_holds(hold))
    if witness is not None:
        for written in write_witnesses(witness, witnesses_of(SchedulerWitness, judged, loaded)):
            say(f"wrote {written}: racegate replay {quote(str(written))}")
    write_engine_page(html, [(scenario, judged)])
    if json is not None:
        write_json(json, result_of(judged, str(scenario)))
    if json != "-":
        print_engine_verdict(stdout_console(), judged, str(scenario))
    raise typer.Exit(exit_code([judged.verdict], benign=benign_of(strict)))


@app.command()
def gate(
    release: ReleaseOption,
    path: PathOption = None,
    model: ModelOption = ModelKind.HYBRID,
    without: WithoutOption = None,
    scenarios: ScriptsOption = None,
    runs: RunsOption = RUNS_MAX,
    strict: StrictOption = None,
    witness: WitnessesOption = None,
    log: LogOption = None,
    junit: JunitOption = None,
    sarif: SarifOption = None,
    html: HtmlOption = None,
    json: JsonOption = None,
) -> None:
    """Judge every scenario of a folder that SGLang can run, on a scheduler that is started once."""
    loaded = loaded_scripts_for("SGLang", folder_of_scripts(scenarios, "sglang"))
    cell = cell_of(release, path, model, without)
    judged = []
    with started(cell, log) as engine:
        for place, scenario in loaded:
            found = judge(engine, scenario, cell, runs_max=runs, on_run=tell_progress)
            judged.append((place, found))
            if witness is not None:
                write_witnesses(witness, witnesses_of(SchedulerWitness, found, scenario))
            if json != "-":
                print_engine_verdict(stdout_console(), found, str(place))
    verdicts = [found for _, found in judged]
    judged_verdicts = [found.verdict for found in verdicts if not found.refused]
    code = exit_code(judged_verdicts, benign=benign_of(strict))
    write_checked(checked_engine(judged, exit_code=code), junit, sarif)
    write_engine_page(html, judged)
    if json is not None:
        results = [result_of(found, str(place)) for place, found in judged]
        write_json(json, gated(results, deciding=[one for one in results if not one.refused]))
    if json != "-":
        print_engine_gate(stdout_console(), verdicts)
    raise typer.Exit(code)


def cell_of(
    release: str, path: Path | None, model: ModelKind, without: list[Repair] | None
) -> SchedulerCell:
    """The scheduler that the options ask for."""
    return SchedulerCell(
        release=release, checkout=checkout_of(path), model=model, without=tuple(without or ())
    )


@contextmanager
def started(cell: SchedulerCell, log: Path | None) -> Iterator[WithPlain]:
    """The scheduler of a cell. Raises BadInputError if it cannot be started."""
    try:
        with open_plain_scheduler(cell, log=log) as engine:
            print(f"SGLang started in {engine.start_s:.0f} s", file=sys.stderr, flush=True)
            yield engine
    except BadInput as error:
        raise BadInputError(str(error)) from error
