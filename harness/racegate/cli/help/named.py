"""Arguments and options that are names, with what a shell offers for them: names that this machine
knows, looked up when it asks.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from racegate.interpose.gpus import GPUS


def scripts(context: typer.Context, incomplete: str) -> list[str]:
    """Scripts by their names, and scenario files and folders from here."""
    from racegate.scenario.files import named_scripts

    return [*_beginning(named_scripts(_engine_of(context)), incomplete), *_files(incomplete)]


def faults(incomplete: str) -> list[str]:
    """Seeded faults and their variants."""
    from racegate.faults.catalogue import FAULTS, VARIANTS

    return _beginning((fault.name for fault in FAULTS + VARIANTS), incomplete)


def pages(incomplete: str) -> list[str]:
    """The documents."""
    from racegate.scenario.shipped import shipped_docs

    return _beginning(shipped_docs(), incomplete)


def gpus(incomplete: str) -> list[str]:
    """GPUs that the virtual device can say that it is."""
    return _beginning(GPUS, incomplete)


def releases(context: typer.Context, incomplete: str) -> list[str]:
    """Releases that are set up here, of the engine that the command is of."""
    from racegate.targets.common.environment import cache_folder

    folder = cache_folder(_engine_of(context) or "vllm")
    found = (path.name for path in folder.glob("[0-9]*")) if folder.is_dir() else ()
    return _beginning(found, incomplete)


def _engine_of(context: typer.Context) -> str:
    """The engine that a command is of; none is our own."""
    words = context.command_path.split()
    return next((word for word in words if word in ("vllm", "sglang")), "")


def _beginning(names: Iterable[str], incomplete: str) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete))


def _files(incomplete: str) -> list[str]:
    """Scenario files and folders that begin so; a folder ends in a slash, so that one goes on."""
    head, _, name = incomplete.rpartition("/")
    folder = Path(f"{head}/" if "/" in incomplete else ".")
    if not folder.is_dir():
        return []
    prefix = incomplete[: len(incomplete) - len(name)]
    found = [path for path in folder.iterdir() if path.name.startswith(name)]
    shown = [path for path in found if not path.name.startswith(".") or name.startswith(".")]
    files = [f"{prefix}{path.name}" for path in shown if path.suffix == ".toml"]
    folders = [f"{prefix}{path.name}/" for path in shown if path.is_dir()]
    return sorted([*files, *folders])


ScenarioArgument = Annotated[
    Path,
    typer.Argument(
        metavar="SCENARIO",
        help="A scenario file, or the name of a script.",
        autocompletion=scripts,
    ),
]
AnyScenarioArgument = Annotated[
    Path | None,
    typer.Argument(
        metavar="[SCENARIO]", help="A scenario file, or a name.", autocompletion=scripts
    ),
]
FaultOption = Annotated[
    str | None,
    typer.Option(
        "--fault",
        metavar="NAME",
        help="A seeded fault (see `faults list`).",
        autocompletion=faults,
    ),
]
ReleaseOption = Annotated[
    str,
    typer.Option(
        "--release",
        metavar="X",
        help="A version, as the package index has it.",
        autocompletion=releases,
    ),
]
GpuOption = Annotated[
    str,
    typer.Option(
        "--gpu",
        metavar="NAME",
        autocompletion=gpus,
        show_default=False,
        help=f"What the virtual device says that it is: {', '.join(GPUS)}.",
    ),
]
