"""The commands of `racegate vllm` and `racegate sglang`: those of every engine that has releases,
and what its gate is worth: how many mutants of a release it notices.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from importlib.util import find_spec
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from racegate.cli.foreign.cells import scheduler_cell, vllm_cell
from racegate.cli.foreign.releases import (
    WorkersOption,
    gate,
    run,
    say_progress,
    search,
    started,
)
from racegate.cli.foreign.repair import repair_in_release
from racegate.cli.foreign.searching import minimised_file
from racegate.cli.foreign.selection import ExceptOption, draw, without
from racegate.cli.help.named import ReleaseOption
from racegate.cli.options import (
    JsonOption,
    LogOption,
    MarkdownOption,
    ScriptsOption,
    SeedOption,
    UsageError,
    fail,
    folder_of_scripts,
    loaded_scripts_for,
    measured,
    stdout_console,
    tell,
    write_text,
)
from racegate.cli.replay import replay
from racegate.cli.sets import with_set
from racegate.history.outcome import SCHEMA
from racegate.interpose.errors import BadInput
from racegate.jobs.environment import environment
from racegate.jobs.foreign.edited import EditedRelease
from racegate.jobs.foreign.releases import OpenedEngine, ReleaseCell, kind_of, workers_of
from racegate.jobs.stopping import StoppedError, known_result
from racegate.scenario.errors import BadInputError
from racegate.scenario.spec import Scenario
from racegate.targets.common.environment import EnginePackage
from racegate.targets.sglang import sources as sglang_sources
from racegate.targets.sglang.cell import SchedulerCell
from racegate.targets.sglang.environment import SGLANG
from racegate.targets.sglang.wire import ModelKind
from racegate.targets.vllm import sources as vllm_sources
from racegate.targets.vllm.cell import Cell
from racegate.targets.vllm.environment import VLLM
from racegate.targets.vllm.wire import ModelRunner, StateMode

if TYPE_CHECKING:
    from racegate.measure.evaluation.foreign.results import ReleaseMutation, ReleaseSpec

SAMPLE = 150
# One run of the release is what many mutants are judged beside: it may take longer than others.
RECORDED_S = 1800.0
AgainOption = Annotated[
    bool | None,
    typer.Option(
        "--again", help="Judge what survived in the file of --keep, and draw no other mutants."
    ),
]
MinutesOption = Annotated[
    float | None,
    typer.Option(min=0, help="Begin no further mutant so many minutes after the start."),
]
AlsoOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="OPTIONS",
        help="Judge what nobody notices with these options too (`--cache-mode align`); "
        "can be repeated.",
    ),
]


def mutate(
    cell: ReleaseCell,
    *,
    sample: Annotated[
        int, typer.Option(min=1, help="So many mutants that matter, by seed.")
    ] = SAMPLE,
    seed: SeedOption = 0,
    file: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE", help="Of the package, in the place of the runner's; can be repeated."
        ),
    ] = None,
    keep: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Go on from this file, and add to it.")
    ] = None,
    again: AgainOption = None,
    equivalent: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Mutants that change nothing, with why.")
    ] = None,
    missing: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="What would notice those that survive, likewise."),
    ] = None,
    also: AlsoOption = None,
    scenarios: ScriptsOption = None,
    left_out: ExceptOption = None,
    minutes: MinutesOption = None,
    workers: WorkersOption = None,
    log: LogOption = None,
    markdown: MarkdownOption = None,
    json: JsonOption = None,
) -> None:
    """Edit the release's own source, one statement at a time, and say what its gate notices beside
    the release: 1 if one mutant survives. The engine that is started is edited in forked processes.
    """
    _need_libraries()
    # Only here is libcst needed, and what measures the tool.
    from racegate.measure.evaluation.foreign.results import Draw, ReleaseSpec
    from racegate.measure.evaluation.source.results import score_of
    from racegate.report.measured.faults import print_source_mutants, render_release_mutants
    from racegate.report.measured.objects import ReleaseMutationObject

    if again and (keep is None or not keep.exists()):
        fail("--again needs the file of an earlier run: give it with --keep")
    packaging = kind_of(cell).packaging
    read = loaded_scripts_for(packaging.title, folder_of_scripts(scenarios, packaging.name))
    scripts = [scenario for _, scenario in without(read, left_out)]
    asked = ReleaseSpec(
        files=tuple(file or _files_of(cell)),
        sample=sample,
        seed=seed,
        keep=keep,
        equivalent=equivalent,
        missing=missing,
        draw=Draw.AGAIN if again else Draw.SAMPLE,
        seconds=inf if minutes is None else 60 * minutes,
    )
    chosen = _chosen(file, scenarios, left_out)
    others = [_other_cell(cell, options) for options in also or ()]
    start = partial(started, log=log, run_s=RECORDED_S, count=workers_of(workers))
    made, stop = _judged(cell, others, scripts, asked, start)
    found = ReleaseMutationObject(schema=SCHEMA, environment=environment(), mutation=made)
    tell(json, found, lambda: print_source_mutants(stdout_console(), made.report))
    if markdown is not None:
        command = _command(cell, asked, chosen, also or ())
        write_text(markdown, render_release_mutants(found, command))
    if stop is not None:
        raise stop
    raise typer.Exit(score_of(made.report.results).exit_code)


def _judged(
    cell: ReleaseCell,
    others: Sequence[ReleaseCell],
    scripts: Sequence[Scenario],
    asked: ReleaseSpec,
    start: Callable[[ReleaseCell], AbstractContextManager[OpenedEngine]],
) -> tuple[ReleaseMutation, StoppedError | None]:
    """What became of the mutants, and how somebody stopped it. others: in which those that nobody
    noticed are judged too; start: an engine of a cell
    """
    from racegate.measure.evaluation.foreign.job import judged_elsewhere, mutate_release
    from racegate.measure.evaluation.foreign.results import ReleaseMutation

    try:
        with start(cell) as opened, measured("mutants") as on_done:
            made = mutate_release(EditedRelease(opened), cell, scripts, asked, on_done=on_done)
    except StoppedError as error:
        return known_result(error, ReleaseMutation), error
    for other in others:
        with start(other) as opened, measured("mutants") as on_done:
            edited = EditedRelease(opened)
            made = judged_elsewhere(made, edited, other, scripts, asked, on_done=on_done)
    return made, None


def _need_libraries() -> None:
    for library in ("libcst", "coverage"):
        if find_spec(library) is None:
            fail(f"mutating the source needs {library}: pip install 'racegate[test]'")


def _files_of(cell: ReleaseCell) -> tuple[str, ...]:
    """What is mutated if nobody says which files."""
    if isinstance(cell, Cell):
        return vllm_sources.MUTATED[cell.runner]
    return sglang_sources.MUTATED


def _other_cell(cell: ReleaseCell, options: str) -> ReleaseCell:
    """The same release (and runner) with other options. Raises typer.Exit through `fail` for
    options that there are not.
    """
    asked = typer.Typer(add_completion=False)
    asked.command()(vllm_cell if isinstance(cell, Cell) else scheduler_cell)
    runner = (f"--runner {cell.runner}",) if isinstance(cell, Cell) else ()
    place = shlex.split(" ".join((*cell.place_options, *runner, options)))
    try:
        found = typer.main.get_command(asked).main(place, "--also", standalone_mode=False)
    except UsageError as error:
        fail(f"--also {options!r}: {error}")
    assert isinstance(found, ReleaseCell)
    return found


def _chosen(
    files: Sequence[str] | None, scenarios: Path | None, left_out: Sequence[str] | None
) -> tuple[str, ...]:
    """Options that say what is mutated, and by which scenarios it is judged."""
    return (
        *(f"--file {file}" for file in files or ()),
        *(() if scenarios is None else (f"--scenarios {scenarios}",)),
        *(f"--except {name}" for name in left_out or ()),
    )


def _command(
    cell: ReleaseCell, asked: ReleaseSpec, chosen: Sequence[str], also: Sequence[str]
) -> str:
    """What makes the same page again. chosen: from `_chosen`"""
    ran, *options = cell.command
    files = {"--keep": asked.keep, "--equivalent": asked.equivalent, "--missing": asked.missing}
    options += [f"--sample {asked.sample} --seed {asked.seed}"]
    options += ["--again"] if asked.draw == "again" else []
    options += [*chosen, *(f'--also "{one}"' for one in also)]
    command = " ".join([f"racegate {ran.partition(' ')[0]} mutate", *options])
    given = [f"{option} {file}" for option, file in files.items() if file is not None]
    return " \\\n        ".join([command, *given])


def setup(
    packaging: EnginePackage,
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
    untried: Annotated[
        bool | None,
        typer.Option("--untried", help="Also a release that nobody has run here, which may fail."),
    ] = None,
    log: LogOption = None,
) -> None:
    """Install a release and its torch into the cache directory, and start it once.

    What is there already is kept.
    """
    try:
        packaging.set_up(
            release, say_progress, torch=torch, requirements=requirements, is_untried=bool(untried)
        )
    except BadInput as error:
        raise BadInputError(str(error)) from error
    with nullcontext() if no_start else started(USUAL[packaging.name](release), log):
        pass


# What is started once when a release is set up.
USUAL: dict[str, Callable[[str], ReleaseCell]] = {
    VLLM.name: lambda release: Cell(release=release, runner=ModelRunner.V1, mode=StateMode.NONE),
    SGLANG.name: lambda release: SchedulerCell(release=release, model=ModelKind.HYBRID),
}


def release_commands(packaging: EnginePackage, cell_of: Callable[..., ReleaseCell]) -> typer.Typer:
    """The commands of an engine that has releases. cell_of: the options that say which it is"""
    commands = typer.Typer(
        no_args_is_help=True, help=f"Judge unmodified {packaging.title} releases, without a GPU."
    )
    commands.command()(with_set("packaging", lambda: packaging)(setup))
    for command in (run, gate, search):
        commands.command()(with_set("cell", cell_of)(command))
    commands.command()(replay)
    commands.command("minimise")(minimised_file)
    return commands


vllm = release_commands(VLLM, vllm_cell)
sglang = release_commands(SGLANG, scheduler_cell)
vllm.command()(draw)
for commands, cell_of in ((vllm, vllm_cell), (sglang, scheduler_cell)):
    commands.command()(with_set("cell", cell_of)(mutate))
    commands.command("repair")(with_set("cell", cell_of)(repair_in_release))
