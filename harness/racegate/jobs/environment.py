"""What a measured figure depends on."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

import numpy as np

from racegate.device.cuda.torch import gpu_environment
from racegate.history import __version__

# For a copy of the tree without its history.
COMMIT_VARIABLE = "RACEGATE_COMMIT"
# In a checkout: commits that changed how files are laid out and nothing that they say.
LAYOUT_COMMITS = "reports/blame_ignore_revs"


def environment() -> dict[str, str]:
    """The software and the machine, without a GPU."""
    return {
        "racegate": __version__,
        "commit": commit_here(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": _cpu_model(),
        "cores": str(os.cpu_count()),
    }


def commit_here() -> str:
    """The commit of the checkout that runs, `-dirty` if files changed since; a copy without its
    history may be told.
    """
    if COMMIT_VARIABLE in os.environ:
        return os.environ[COMMIT_VARIABLE]
    here = str(Path(__file__).parent)
    command = ("git", "-C", here, "describe", "--always", "--dirty", "--exclude", "*")
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return "unknown"
    return found.stdout.strip() or "unknown"


def _cpu_model() -> str:
    """The name Linux gives the processor; what Python knows elsewhere."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def environment_of(device: str) -> dict[str, str]:
    """The same, and the GPU if that is the device."""
    found = environment() | {"device": device}
    return found | gpu_environment() if device == "cuda" else found


def last_commits(folder: Path) -> dict[str, str]:
    """File of a folder -> the last commit that changed what it says; nothing without the history.

    Commits that the checkout lists in `reports/blame_ignore_revs` changed only how it is laid out.
    """
    git = ("git", "-C", str(folder))
    log = ("log", "--format=%x01%H %h", "--name-only", "--relative", "--", ".")
    try:
        shallow = _said((*git, "rev-parse", "--is-shallow-repository"))
        history = _said((*git, "-c", "core.quotePath=false", *log))
        ignored = _lines(Path(_said((*git, "rev-parse", "--show-toplevel"))) / LAYOUT_COMMITS)
    except OSError:
        return {}
    found: dict[str, str] = {}
    for part in history.split("\x01") if shallow == "false" else ():
        commit, *names = part.split("\n")
        whole, _, short = commit.partition(" ")
        for name in filter(None, names if whole not in ignored else ()):
            found.setdefault(name, short)
    return found


def _lines(path: Path) -> set[str]:
    return set(path.read_text().splitlines()) if path.is_file() else set()


def _said(command: tuple[str, ...]) -> str:
    done = subprocess.run(command, capture_output=True, check=False)
    return done.stdout.decode(errors="replace").strip()
