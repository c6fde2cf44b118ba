"""What the commands share: options, consoles, JSON, errors.

Imported for every command, also for `--help`: what is heavy is imported where it is used.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn, TypeVar

import msgspec
import typer

from racegate.device.cuda.pacing import Pacing
from racegate.history.files import check_writable, write_whole
from racegate.history.finding import Benign
from racegate.scenario.errors import BrokenHarnessError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from racegate.device.cuda.site import CudaSite


T = TypeVar("T")


class DeviceKind(StrEnum):
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
        except OSError as error:
            fail(f"cannot write {target}: {error.strerror or error}")
    return target


JsonOption = Annotated[
    str | None,
    typer.Option(
        "--json",
        metavar="PATH|-",
        help="Write one JSON object here.",
        callback=place_to_write,
    ),
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
FaultOption = Annotated[
    str | None, typer.Option("--fault", metavar="NAME", help="A seeded fault (see `faults list`).")
]
ScenariosOption = Annotated[
    Path, typer.Option("--scenarios", metavar="DIR", help="Folder of the scenario scripts.")
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
DeviceOption = Annotated[DeviceKind, typer.Option(help="Where to run.")]
PacingOption = Annotated[
    Pacing,
    typer.Option(
        help="On CUDA: complete what no hold names before the host goes on, or leave it to the GPU."
    ),
]
WorkersOption = Annotated[int, typer.Option(min=1, max=256, help="Processes.")]
AllCoresOption = Annotated[
    int | None,
    typer.Option("--workers", min=1, max=256, show_default="the cores", help="Processes."),
]

# Where there is no terminal to ask, tables are wide enough for a log.
LOG_WIDTH = 110


def site_of(device: DeviceKind, pacing: Pacing) -> CudaSite | None:
    """The GPU to run on, if that is asked for. Raises NoCudaError."""
    if device is DeviceKind.VIRTUAL:
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
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=LOG_WIDTH)


def progress_bar() -> Progress:
    """Progress on standard error, so that standard output stays clean."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)


def fail(message: str) -> NoReturn:
    """Bad input: the reason on standard error, exit code 2."""
    print(f"racegate: {message}", file=sys.stderr)
    raise SystemExit(2)


def tell(json: str | None, value: object, show: Callable[[], None]) -> None:
    """The result as JSON where that is asked for, and shown unless JSON takes its place. A full
    disk under the one does not keep the other from being seen.
    """
    try:
        if json is not None:
            write_json(json, value)
    finally:
        if json != "-":
            show()


def write_json(target: str, value: object) -> None:
    """One JSON value to standard output (`-`) or a file, whole or not at all."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    if target == "-":
        sys.stdout.write(text + "\n")
        return
    write_text(Path(target), text + "\n")


def write_text(path: Path, text: str) -> None:
    """A file, whole or not at all. Its place was good when the command began: an error is none of
    the user's.
    """
    try:
        write_whole(path, text.encode())
    except OSError as error:
        raise BrokenHarnessError(f"cannot write {path}: {error.strerror or error}") from error


def benign_of(is_strict: bool | None) -> Benign:  # noqa: FBT001
    """What BENIGN is, by the option --strict."""
    return Benign.FINDING if is_strict else Benign.PASS
