"""What an A/B run was made on."""

from __future__ import annotations

import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from racegate.bench import environment

UNKNOWN = "unknown"


def environment_of(device: str) -> dict[str, str]:
    """Versions, machine, commit and, on CUDA, GPU and driver."""
    found = environment() | {
        "device": device,
        "commit": _commit(),
        "torch": _version("torch"),
        "triton": _version("triton"),
    }
    return found | _gpu() if device == "cuda" else found


def _gpu() -> dict[str, str]:
    import torch

    cuda: Any = torch.cuda
    asked = ("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    return {
        "gpu": str(cuda.get_device_name()),
        "cuda": str(torch.version.cuda),
        "driver": _first_line(asked),
        "cuda_bindings": _version("cuda-bindings"),
    }


def _commit() -> str:
    """Of the checkout that this package runs from, if it is one."""
    here = str(Path(__file__).parent)
    commit = _first_line(("git", "-C", here, "rev-parse", "HEAD"))
    if commit == UNKNOWN:
        return commit
    changed = _first_line(("git", "-C", here, "status", "--porcelain"))
    return commit if changed == UNKNOWN else f"{commit} with changes"


def _first_line(command: tuple[str, ...]) -> str:
    """What a command says first; UNKNOWN if it cannot be asked or says nothing."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return UNKNOWN
    lines = done.stdout.splitlines()
    return lines[0].strip() if lines else UNKNOWN


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return UNKNOWN
