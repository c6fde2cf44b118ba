"""The commands of `racegate vllm`: unmodified releases, without a GPU."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from shlex import quote
from typing import Annotated

import msgspec
import typer

from racegate.cli.ci import JunitOption, SarifOption, write_checked
from racegate.cli.foreign.pictures import write_engine_page
from racegate.cli.options import (
    JsonOption,
    ScriptsOption,
    StrictOption,
    WitnessesOption,
    benign_of,
    folder_of_scripts,
    folder_to_fill,
    loaded_scripts_for,
    place_to_write,
    say,
    stdout_console,
    write_json,
)
from racegate.cli.pictures import HtmlOption
from racegate.cli.replay import replay
from racegate.history.finding import exit_code
from racegate.history.outcome import gated
from racegate.history.schedule import parse_holds
from racegate.interpose.errors import BadInput
from racegate.report.targets.releases import checked_engine, print_engine_gate, print_engine_verdict
from racegate.scenario.errors import BadInputError
from racegate.scenario.files import load_for
from racegate.scenario.spec import Scenario
from racegate.targets.common.client import Engine
from racegate.targets.common.judge import judge, judge_under
from racegate.targets.common.result import result_of
from racegate.targets.common.search import RUNS_MAX
from racegate.targets.common.wire import Fidelity
from racegate.targets.common.witnesses.again import shown_again
from racegate.targets.common.witnesses.witness import witnesses_of, write_witnesses
from racegate.targets.vllm.campaign import search_seeds
from racegate.targets.vllm.campaign_report import print_campaign, seed_line
from racegate.targets.vllm.cell import Cell
from racegate.targets.vllm.engine import open_cell
from racegate.targets.vllm.environment import set_up
from racegate.targets.vllm.sensitivity import sensitivity_of
from racegate.targets.vllm.wire import ModelRunner, StateMode
from racegate.targets.vllm.witness import EngineWitness, read_witness

SCENARIOS_MAX = 300
app = typer.Typer(no_args_is_help=True, help="Judge unmodified vLLM releases, without a GPU.")

ReleaseOption = Annotated[
    str, typer.Option("--release", metavar="X", help="A version, as the package index has it.")
]
PathOption = Annotated[
    Path | None,
    typer.Option("--path", metavar="DIR", help="A local checkout in the place of the release."),
]
RunnerOption = Annotated[ModelRunner, typer.Option("--runner", help="vLLM's model runner.")]
ModeOption = Annotated[
    StateMode, typer.Option("--cache-mode", help="How recurrent states are kept for prefixes.")
]
RunsOption = Annotated[int, typer.Option("--runs", min=0, help="Runs under holds at most.")]
LogOption = Annotated[
    Path | None,
    typer.Option(
        "--log",
        metavar="FILE",
        help="What the engine prints, instead of stderr.",
        callback=place_to_write,
    ),
]


@app.command()
def setup(
    release: ReleaseOption,
    torch: Annotated[
        Path | None,
        typer.Option(
            "--torch",
            metavar="DIR",
            help="A virtual environment whose torch takes the place of the release's own.",
        ),
    ] = None,
    requirements: Annotated[
        Path | None,
        typer.Option(
            "--requirements",
            metavar="FILE",
            help="Install what this file lists and no more, not what the release asks for.",
        ),
    ] = None,
    no_start: Annotated[
        bool | None, typer.Option("--no-start", help="Do not start the engine once.")
    ] = None,
    log: LogOption = None,
) -> None:
    """Install a release and its torch into the cache directory, and start it once.

    What is there already is kept.
    """
    try:
        set_up(
            release,
            lambda text: print(text, file=sys.stderr, flush=True),
            torch=torch,
            requirements=requirements,
        )
    except BadInput as error:
        raise BadInputError(str(error)) from error
    cell = Cell(release=release, runner=ModelRunner.V1, mode=StateMode.NONE)
    with nullcontext() if no_start else started(cell, log):
        pass


@app.command()
def run(
    scenario: Annotated[Path, typer.Argument(metavar="SCENARIO", help="A scenario file.")],
    release: ReleaseOption,
    path: PathOption = None,
    runner: RunnerOption = ModelRunner.V1,
    cache_mode: ModeOption = StateMode.NONE,
    hold: Annotated[
        list[str] | None, typer.Option("--hold", metavar="'OP until ACCESS'", help="A hold.")
    ] = None,
    fidelity: Annotated[
        Fidelity, typer.Option("--fidelity", help="full: the model computes what it says.")
    ] = Fidelity.HOLLOW,
    runs: RunsOption = RUNS_MAX,
    strict: StrictOption = None,
    witness: WitnessesOption = None,
    log: LogOption = None,
    html: HtmlOption = None,
    json: JsonOption = None,
) -> None:
    """Run one scenario, eagerly and with the landings of what races, or with holds; judge it."""
    loaded = load_for("vLLM", scenario)
    cell = Cell(
        release=release,
        checkout=checkout_of(path),
        runner=runner,
        mode=cache_mode,
        fidelity=fidelity,
    )
    with started(cell, log) as engine:
        pulses = sensitivity_of(engine)
        if hold is None:
            judged = judge(
                engine, loaded, cell, sensitivity=pulses, runs_max=runs, on_run=tell_progress
            )
        else:
            judged = judge_under(engine, loaded, cell, parse_holds(hold), sensitivity=pulses)
    if witness is not None:
        for written in write_witnesses(witness, witnesses_of(EngineWitness, judged, loaded)):
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
    runner: RunnerOption = ModelRunner.V1,
    cache_mode: ModeOption = StateMode.NONE,
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
    """Judge every scenario of a folder that vLLM can run, on an engine that is started once."""
    loaded = loaded_scripts_for("vLLM", folder_of_scripts(scenarios, "vllm"))
    cell = Cell(release=release, checkout=checkout_of(path), runner=runner, mode=cache_mode)
    judged = []
    with started(cell, log) as engine:
        pulses = sensitivity_of(engine)
        for place, scenario in loaded:
            found = judge(
                engine, scenario, cell, sensitivity=pulses, runs_max=runs, on_run=tell_progress
            )
            judged.append((place, found))
            if witness is not None:
                write_witnesses(witness, witnesses_of(EngineWitness, found, scenario))
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


@app.command()
def search(
    release: ReleaseOption,
    path: PathOption = None,
    runner: RunnerOption = ModelRunner.V1,
    cache_mode: ModeOption = StateMode.NONE,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="How many scenarios.")] = 20,
    seed: Annotated[int, typer.Option("--seed", min=0, help="The first seed.")] = 0,
    runs: RunsOption = RUNS_MAX,
    strict: StrictOption = None,
    witness: WitnessesOption = None,
    log: LogOption = None,
    json: JsonOption = None,
) -> None:
    """Draw scenarios from seeds and judge each with its landings; a witness per kind of harm."""
    cell = Cell(release=release, checkout=checkout_of(path), runner=runner, mode=cache_mode)
    with started(cell, log) as engine:
        found = search_seeds(
            engine,
            cell,
            range(seed, seed + seeds),
            sensitivity=sensitivity_of(engine),
            runs_max=runs,
            on_seed=lambda one: print(seed_line(one), file=sys.stderr, flush=True),
        )
    if witness is not None:
        for written in write_witnesses(witness, list(found.witnesses)):
            print(f"witness {written}", file=sys.stderr)
    if json is not None:
        write_json(json, found)
    if json != "-":
        print_campaign(stdout_console(), found)
    raise typer.Exit(exit_code([one.verdict for one in found.seeds], benign=benign_of(strict)))


app.command()(replay)


@app.command()
def minimise(
    witness: Annotated[Path, typer.Argument(metavar="WITNESS", help="A file of run --witness.")],
    folder: Annotated[
        Path,
        typer.Option(
            "--witness",
            metavar="DIR",
            help="Where the smaller witness goes.",
            callback=folder_to_fill,
        ),
    ],
    path: PathOption = None,
    runs: Annotated[
        int, typer.Option("--runs", min=1, help="Scenarios tried at most.")
    ] = SCENARIOS_MAX,
    log: LogOption = None,
) -> None:
    """Leave out of a witness's scenario what its harm does not need, and write what is left."""
    from racegate.check.repro.minimise import smallest_scenario

    small = read_witness(witness)
    cell = small.subject
    if path is not None:
        cell = msgspec.structs.replace(cell, checkout=checkout_of(path))
    with started(cell, log) as engine:

        def still_fails(scenario: Scenario) -> bool:
            nonlocal small
            found = shown_again(engine, small, scenario)
            small = found or small
            return found is not None

        done = smallest_scenario(small.scenario, still_fails, runs_max=runs)
    (written,) = write_witnesses(folder, [small])
    requests = len(small.scenario.requests)
    whole = "" if done.is_minimal else " (there may be a smaller one: --runs)"
    say(f"wrote {written}: {requests} requests, {done.runs} scenarios tried{whole}")


@contextmanager
def started(cell: Cell, log: Path | None) -> Iterator[Engine]:
    """The engine of a cell. Raises BadInputError if it cannot be started."""
    try:
        with open_cell(cell, log=log) as engine:
            print(f"vLLM started in {engine.start_s:.0f} s", file=sys.stderr, flush=True)
            yield engine
    except BadInput as error:
        raise BadInputError(str(error)) from error


def checkout_of(path: Path | None) -> str | None:
    """A checkout as a cell names it."""
    return None if path is None else str(path)


def tell_progress(runs: int) -> None:
    """Every tenth run under holds."""
    if runs % 10 == 0:
        print(f"{runs} runs under holds", file=sys.stderr, flush=True)
