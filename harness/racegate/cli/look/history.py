"""The commands history vllm, sglang and PROGRAM: a table of version after version."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from racegate.cli.options import (
    JsonOption,
    MarkdownOption,
    ScriptsOption,
    fail,
    folder_of_scripts,
    folder_to_fill,
    loaded_scripts_for,
    say,
    stdout_console,
    tell,
    write_text,
)
from racegate.cli.sets import with_set
from racegate.history.exit_code import ExitCode
from racegate.history.outcome import SCHEMA
from racegate.interpose.errors import BadInput
from racegate.jobs.versions.bisecting import bisect_releases
from racegate.jobs.versions.chosen import available, chosen
from racegate.jobs.versions.engines import EngineHistory, Environments
from racegate.jobs.versions.faulty import faulty_range
from racegate.jobs.versions.kinds import EngineKind, SglangKind, VllmKind
from racegate.jobs.versions.programs import ProgramHistory
from racegate.jobs.versions.running import History, kept, run_history
from racegate.report.dashboard.versions import (
    print_history,
    render_history,
    render_origin,
    render_range,
)
from racegate.report.objects import HistoryObject
from racegate.scenario.errors import BadInputError
from racegate.scenario.spec import Scenario
from racegate.targets.common.environment import EnginePackage, cache_folder
from racegate.targets.common.judge import RUNS_MAX
from racegate.targets.program.launch import checked_program
from racegate.targets.sglang.wire import ModelKind
from racegate.targets.vllm.wire import ModelRunner, StateMode

PROGRAM_RUNS = 24


class Targets(TyperGroup):
    """Its commands by name; whatever else comes first is a program."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        known = args if args[0] in self.commands else ["program", *args]
        return super().resolve_command(ctx, known)


app = typer.Typer(
    cls=Targets,
    add_completion=False,
    no_args_is_help=True,
    help="Judge version after version, and show a table: of vllm, of sglang, or, for any package, "
    "of a program that uses it: racegate history SCRIPT --package NAME --versions A..B.",
)

VersionsOption = Annotated[
    str,
    typer.Option(
        "--versions",
        metavar="A..B",
        help="From A to B of what pip finds, either may be missing; or a list: 1.0,1.2,2.0.",
    ),
]
OutOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        show_default="history-NAME",
        help="A file for each version and way to run it: what is there is kept.",
    ),
]
OnlyOption = Annotated[
    list[str] | None,
    typer.Option("--scenario", metavar="NAME", help="Not all scenarios; can be repeated."),
]
RunsOption = Annotated[
    int, typer.Option(min=0, help="Runs under holds at most, for each scenario.")
]
BesideOption = Annotated[
    list[str] | None,
    typer.Option("--with", metavar="NAME==X", help="Installed beside each; can be repeated."),
]
RemoveOption = Annotated[
    bool | None,
    typer.Option("--remove", help="Delete each environment that was made here, when it is done."),
]


def vllm_kind(
    runner: Annotated[list[ModelRunner] | None, typer.Option(help="Not both of them.")] = None,
    cache_mode: Annotated[list[StateMode] | None, typer.Option(help="Not all of them.")] = None,
) -> VllmKind:
    """The ways to run vLLM that are asked for."""
    return VllmKind(tuple(runner or ModelRunner), tuple(cache_mode or StateMode))


def sglang_kind(
    model: Annotated[list[ModelKind] | None, typer.Option(help="Not hybrid and dense.")] = None,
) -> SglangKind:
    """The ways to run SGLang that are asked for."""
    return SglangKind(tuple(model)) if model else SglangKind()


def releases(
    versions: VersionsOption,
    kind: EngineKind,
    scenarios: ScriptsOption = None,
    scenario: OnlyOption = None,
    runs: RunsOption = RUNS_MAX,
    out: OutOption = None,
    remove: RemoveOption = None,
    markdown: MarkdownOption = None,
    json: JsonOption = None,
) -> None:
    """Every scenario in releases of an engine, by each way to run it.

    0: the table is whole; 4: something could not be run, and the table says why.
    """
    subject = EngineHistory(
        kind,
        _chosen_scenarios(scenarios, kind.packaging, scenario),
        runs_max=runs,
        environments=Environments.REMOVED if remove else Environments.KEPT,
    )
    _show(_made(subject, kind.packaging.name, versions, out), markdown, json)


app.command("vllm")(with_set("kind", vllm_kind)(releases))
app.command("sglang")(with_set("kind", sglang_kind)(releases))


@app.command(
    "program", context_settings={"allow_interspersed_args": True, "ignore_unknown_options": True}
)
def program(
    script: Annotated[
        list[str], typer.Argument(metavar="SCRIPT [ARGS]", help="Or -- -m MODULE [ARGS].")
    ],
    package: Annotated[str, typer.Option(metavar="NAME", help="What pip calls it.")],
    versions: VersionsOption,
    beside: BesideOption = None,
    runs: RunsOption = PROGRAM_RUNS,
    out: OutOption = None,
    markdown: MarkdownOption = None,
    json: JsonOption = None,
) -> None:
    """A program on versions of a package that it uses; the word `program` may be left out.

    Each version is in an environment of its own, on top of this Python's torch. 0: the table is
    whole; 4: something could not be run, and the table says why.
    """
    subject = _program_history(script, package, beside, runs)
    _show(_made(subject, package, versions, out), markdown, json)


bisect_app = typer.Typer(add_completion=False)


@bisect_app.command(
    "bisect", context_settings={"allow_interspersed_args": True, "ignore_unknown_options": True}
)
def bisect(
    script: Annotated[
        list[str], typer.Argument(metavar="SCRIPT [ARGS]", help="Or -- -m MODULE [ARGS].")
    ],
    package: Annotated[str, typer.Option(metavar="NAME", help="What pip calls it.")],
    bad: Annotated[str, typer.Option(metavar="V", help="A version with a race.")],
    good: Annotated[
        str,
        typer.Option(
            metavar="V",
            show_default="both ends are looked for",
            help="One without, before or after it.",
        ),
    ] = "",
    beside: BesideOption = None,
    runs: RunsOption = PROGRAM_RUNS,
    out: OutOption = None,
    json: JsonOption = None,
) -> None:
    """Find the release of a package that brought a race into a program, and the one that repaired
    it; with --good only that of the two. 1: found; 4: one of several, of which some cannot be
    judged.
    """
    subject = _program_history(script, package, beside, runs)
    folder = out or Path(f"history-{package}")
    folder_to_fill(folder)
    try:
        there = available(package)
        if unknown := {good, bad} - {"", *there}:
            told = f"{package} has no version {min(unknown)} here; it has {', '.join(there)}"
            raise BadInput(told)
        if not good:
            both = faulty_range(subject, there, bad, package=package, folder=folder, say=say)
            tell(json, both, lambda: print(render_range(both)))
            raise typer.Exit(both.exit_code)
        versions, is_brought = _from_good_to_bad(there, good, bad)
        found = bisect_releases(
            subject, versions, package=package, is_brought=is_brought, folder=folder, say=say
        )
    except BadInput as error:
        raise BadInputError(str(error)) from error
    tell(json, found, lambda: print(render_origin(found)))
    raise typer.Exit(found.exit_code)


def _from_good_to_bad(there: tuple[str, ...], good: str, bad: str) -> tuple[tuple[str, ...], bool]:
    """The versions from one to the other, and whether the bad one is the later. Raises BadInput."""
    first, last = there.index(good), there.index(bad)
    if first == last:
        raise BadInput("--good and --bad are the same version")
    is_brought = first < last
    return (there[first : last + 1] if is_brought else there[last : first + 1][::-1]), is_brought


def _program_history(
    script: list[str], package: str, beside: list[str] | None, runs: int
) -> ProgramHistory:
    """What judges a program on a version. Raises BadInputError."""
    if runs < 1:
        fail("--runs: a program is searched with at least one run")
    try:
        checked = checked_program(tuple(script))
    except BadInput as error:
        raise BadInputError(str(error)) from error
    return ProgramHistory(
        checked.argv,
        package,
        folder=cache_folder("programs"),
        beside=tuple(beside or ()),
        runs_max=runs,
    )


def _chosen_scenarios(
    folder: Path | None, packaging: EnginePackage, names: list[str] | None
) -> tuple[Scenario, ...]:
    scripts = folder_of_scripts(folder, packaging.name)
    loaded = [scenario for _, scenario in loaded_scripts_for(packaging.title, scripts)]
    if unknown := set(names or ()) - {scenario.name for scenario in loaded}:
        there = ", ".join(scenario.name for scenario in loaded)
        fail(f"no scenario {', '.join(sorted(unknown))} in {scripts}; there are {there}")
    return tuple(one for one in loaded if not names or one.name in names)


def _made(subject: History, package: str, text: str, out: Path | None) -> HistoryObject:
    """What is in the folder when everything that was missing has been run."""
    folder = out or Path(f"history-{package}")
    folder_to_fill(folder)
    try:
        versions = chosen(text, package)
        run_history(subject, versions, folder, say)
        cells = [kept(one, folder) for version in versions for one in subject.cells(version)]
    except BadInput as error:
        raise BadInputError(str(error)) from error
    return HistoryObject(
        schema=SCHEMA, target=package, versions=versions, names=subject.names, cells=tuple(cells)
    )


def _show(found: HistoryObject, markdown: Path | None, json: str | None) -> None:
    if markdown is not None:
        write_text(markdown, render_history(found))
    tell(json, found, lambda: print_history(stdout_console(), found))
    if any(cell.cannot for cell in found.cells):
        raise typer.Exit(ExitCode.INCONCLUSIVE)
