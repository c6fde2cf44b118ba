"""What the commands share: options, consoles, JSON, errors.

Imported for every command, also for `--help`: what is heavy is imported where it is used.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from enum import StrEnum
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, NoReturn, TypeVar, cast

import typer

from racegate.device.cuda.pacing import Pacing
from racegate.history.finding import Benign
from racegate.jobs.pools.choice import PoolBackend
from racegate.scenario.errors import BrokenHarnessError
from racegate.scenario.shipped import shipped_scripts
from racegate.scenario.untrusted.files import check_writable, json_text, write_whole
from racegate.scenario.untrusted.text import many, message

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from racegate.device.cuda.site import CudaSite
    from racegate.scenario.spec import OwnScenario, Scenario


T = TypeVar("T")
# Every error of usage; Typer exports no name for it.
UsageError = cast(type[Exception], typer.BadParameter.__bases__[0])


class ExecutionDevice(StrEnum):
    """Where to run."""

    VIRTUAL = "virtual"
    CUDA = "cuda"


class Audit(StrEnum):
    """Whether operations see only the rows that they declare."""

    ON = "on"
    OFF = "off"


class Explore(StrEnum):
    """Which schedules are run."""

    EAGER = "eager"
    LADDER = "ladder"


def place_to_write(target: T) -> T:
    """For an option that names a file to be written: tried before anything is run."""
    if target is not None and str(target) != "-":
        try:
            check_writable(Path(str(target)))
        except (OSError, ValueError) as error:
            fail(f"cannot write {target}: {reason_of(error)}")
    return target


def folder_to_fill(target: Path | None) -> Path | None:
    """For an option that names a folder of files to be written: made before anything is run."""
    if target is not None:
        try:
            target.mkdir(parents=True, exist_ok=True)
            check_writable(target / "any")
        except (OSError, ValueError) as error:
            fail(f"cannot write into {target}: {reason_of(error)}")
    return target


def reason_of(error: OSError | ValueError) -> str:
    """Why a file was not opened, without its name. A NUL in a name is a ValueError."""
    return (isinstance(error, OSError) and error.strerror) or str(error)


HoldOption = Annotated[
    list[str] | None, typer.Option("--hold", metavar="'OP until ACCESS'", help="A hold.")
]
PathOption = Annotated[
    Path | None,
    typer.Option("--path", metavar="DIR", help="A local checkout in the place of the release."),
]
LogOption = Annotated[
    Path | None,
    typer.Option(
        "--log",
        metavar="FILE",
        help="What the engine prints, instead of stderr.",
        callback=place_to_write,
    ),
]
JsonOption = Annotated[
    str | None,
    typer.Option(
        "--json",
        metavar="PATH|-",
        help="Write one JSON object here.",
        callback=place_to_write,
    ),
]
MarkdownOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write the sums as Markdown here.", callback=place_to_write),
]
StrictOption = Annotated[
    bool | None,
    typer.Option("--strict", help="Let BENIGN count as a finding: no unordered pair at all."),
]
TimeoutOption = Annotated[
    float,
    typer.Option(
        min=0.0, metavar="SECONDS", help="For one scenario; what takes longer is broken. 0: none."
    ),
]
RunTimeoutOption = Annotated[
    float,
    typer.Option(
        "--timeout", min=0.0, metavar="SECONDS", help="For each run of a program. 0: none."
    ),
]
TargetOption = Annotated[
    str | None, typer.Option("--target", metavar="NAME", help="A target of a fleet (see `fleet`).")
]
ScriptsOption = Annotated[
    Path | None,
    typer.Option(
        "--scenarios",
        metavar="DIR",
        show_default="scenarios, or those that come with racegate",
        help="Folder of the scenario scripts.",
    ),
]
AuditOption = Annotated[
    Audit,
    typer.Option(help="Give every operation only the rows it declares, and check that it obeys."),
]
BudgetOption = Annotated[
    int, typer.Option(min=1, help="Schedules per scenario that the ladder may run.")
]
SeedOption = Annotated[
    int, typer.Option(min=0, help="Seed of samplers, and of what a request log leaves open.")
]
DeviceOption = Annotated[ExecutionDevice, typer.Option(help="Where to run.")]
PacingOption = Annotated[
    Pacing,
    typer.Option(
        help="On CUDA: complete what no hold names before the host goes on, or leave it to the GPU."
    ),
]
BackendOption = Annotated[
    PoolBackend, typer.Option(help="Where workers are: processes here, or a Ray cluster.")
]
AddressOption = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="Of a Ray cluster; without it one is started here."),
]
StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="PATH|URL",
        envvar="RACEGATE_STORE",
        help="Shared by many campaigns: a folder, or redis://HOST:PORT (rediss:// with TLS).",
    ),
]
WrittenStoreOption = Annotated[
    str,
    typer.Option(
        "--store",
        metavar="PATH|URL",
        envvar="RACEGATE_STORE",
        help="A campaign's folder, or the store that campaigns share.",
    ),
]
WorkersOption = Annotated[int, typer.Option(min=1, max=256, help="Processes.")]
AllCoresOption = Annotated[
    int | None,
    typer.Option("--workers", min=1, max=256, show_default="the cores", help="Processes."),
]

# Where there is no terminal to ask, tables are wide enough for a log.
LOG_WIDTH = 110


def folder_of_scripts(given: Path | None, engine: str = "") -> Path:
    """The folder that was named, `scenarios` in this one, or what comes with racegate. engine: for
    scripts of its own, which lie in a folder below it
    """
    here = Path("scenarios", engine)
    if given is not None or here.is_dir():
        return given or here
    shipped = shipped_scripts() / engine
    say(f"no folder {here} here: the scripts that come with racegate, from {shipped}")
    return shipped


def loaded_scripts(folder: Path) -> list[tuple[Path, OwnScenario]]:
    """The scripts of a folder. Says which folders below it have scripts that are not read, unless
    they are those that racegate itself comes with. Raises ScenarioError.
    """
    from racegate.scenario.files import load_all, scenario_paths

    loaded = load_all(scenario_paths(folder))
    _say_left_out(folder)
    return loaded


def loaded_scripts_for(target: str, folder: Path) -> list[tuple[Path, Scenario]]:
    """The same for a target that has settings of its own. Raises ScenarioError, also for a script
    that has settings of racegate's own engine.
    """
    from racegate.scenario.files import load_all_for, scenario_paths

    loaded = load_all_for(target, scenario_paths(folder))
    _say_left_out(folder)
    return loaded


def _say_left_out(folder: Path) -> None:
    from racegate.scenario.files import left_out

    if not (folder / "controls").is_dir():
        for name, count in left_out(folder).items():
            scripts = many(count, "script")
            say(f"not read: {scripts} in {folder / name}; name that folder to run them")


def site_of(device: ExecutionDevice, pacing: Pacing) -> CudaSite | None:
    """The GPU to run on, if that is asked for. Raises NoCudaError."""
    if device is ExecutionDevice.VIRTUAL:
        return None
    from racegate.device.cuda.site import CudaSite
    from racegate.device.cuda.torch import open_cuda

    return CudaSite(open_cuda(), pacing=pacing)


def cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def stdout_console() -> Console:
    """Standard output, as wide as the terminal or as LOG_WIDTH."""
    from racegate.scenario.untrusted.console import PrintableConsole

    console = PrintableConsole()
    return console if console.is_terminal else PrintableConsole(width=LOG_WIDTH)


def stderr_console() -> Console:
    """Standard error, for what is shown while a command works."""
    from racegate.scenario.untrusted.console import PrintableConsole

    return PrintableConsole(stderr=True)


def progress_bar() -> Progress:
    """Progress on standard error, so that standard output stays clean."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
    )
    return Progress(*columns, console=stderr_console(), transient=True)


@contextmanager
def counted(doing: str, *, total: int) -> Iterator[Callable[[int], None]]:
    """A bar for work of so many parts at most; what it gives is told how many are done."""
    with progress_bar() as progress:
        task = progress.add_task(doing, total=total)
        yield lambda done: progress.update(task, completed=done)


@contextmanager
def named(doing: str, *, total: int | None = None) -> Iterator[Callable[[object], None]]:
    """A bar for work that says of each part that it is done: what it gives is told the part."""
    with progress_bar() as progress:
        task = progress.add_task(doing, total=total)
        yield lambda name: progress.update(task, advance=1, description=str(name))


@contextmanager
def measured(doing: str) -> Iterator[Callable[[int, int, str], None]]:
    """A bar for work that finds out how much it is: what it gives is told how many parts are done,
    of how many, and which was the last. Where nobody sees a bar, each part has a line.
    """
    with progress_bar() as progress:
        task = progress.add_task(doing, total=None)
        is_seen = progress.console.is_terminal

        def on_done(done: int, total: int, what: str) -> None:
            progress.update(task, completed=done, total=total, description=what)
            if not is_seen:
                say(f"{done} of {total}: {what}")

        yield on_done


def say(text: str) -> None:
    """A message on standard error: how a command goes on, or why it does not."""
    print(message(f"racegate: {text}"), file=sys.stderr, flush=True)


def say_written(files: Iterable[Path]) -> None:
    """Witnesses that were written, each with what replays it."""
    for file in files:
        say(f"wrote {file}: racegate replay {quote(str(file))}")


def fail(reason: str) -> NoReturn:
    """Bad input: the reason on standard error, exit code 2."""
    say(reason)
    raise SystemExit(2)


def tell(json: str | None, value: object, show: Callable[[], None]) -> None:
    """The result as JSON where that is asked for, and shown unless JSON takes its place. A full
    disk under the one does not keep the other from being seen. Raises BrokenHarnessError if
    standard output cannot be written: what was found is shown on standard error then.
    """
    try:
        try:
            if json is not None:
                write_json(json, value)
        finally:
            if json != "-":
                show()
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        with redirect_stdout(sys.stderr):
            show()
        reason = f"cannot write standard output: {reason_of(error)}; it is shown here instead"
        raise BrokenHarnessError(reason) from error


def write_json(target: str, value: object) -> None:
    """One JSON value to standard output (`-`) or a file, whole or not at all."""
    text = json_text(value)
    if target == "-":
        sys.stdout.write(text)
        return
    write_text(Path(target), text)


def write_text(path: Path, text: str) -> None:
    """A file, whole or not at all. Its place was good when the command began: an error is none of
    the user's.
    """
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """The same of what is no text."""
    try:
        write_whole(path, content)
    except OSError as error:
        raise BrokenHarnessError(f"cannot write {path}: {error.strerror or error}") from error


def benign_of(is_strict: bool | None) -> Benign:  # noqa: FBT001
    """What BENIGN is, by the option --strict."""
    return Benign.FINDING if is_strict else Benign.PASS


WitnessesOption = Annotated[
    Path | None,
    typer.Option(
        "--witness",
        metavar="DIR",
        help="Write landings that do harm.",
        callback=folder_to_fill,
    ),
]
