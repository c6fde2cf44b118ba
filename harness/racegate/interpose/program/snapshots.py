"""Torch's snapshots of the allocator say where memory was asked for: in the program, not here."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import torch

from racegate.interpose.device.frames import is_own_file

# Lies between two calls of ours where an operator asks its next kernel.
_OPERATORS = os.path.join(os.path.dirname(torch.__file__), "_ops.py")
Frame = dict[str, Any]


def track_snapshots() -> None:
    """From now on the frames of a snapshot are those that a GPU's would have."""
    take = torch._C._cuda_memorySnapshot

    def snapshot(*args: Any) -> Any:
        taken = take(*args)
        for entry in _entries(taken):
            entry["frames"] = without_ours(entry["frames"])
        return taken

    torch._C._cuda_memorySnapshot = snapshot


def _entries(taken: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Segments, their blocks, and what happened to them: each that has frames."""
    blocks = [block for segment in taken["segments"] for block in segment["blocks"]]
    traces = [entry for trace in taken["device_traces"] for entry in trace]
    for entry in (*taken["segments"], *blocks, *traces):
        if "frames" in entry:
            yield entry


def without_ours(frames: list[Frame]) -> list[Frame]:
    """frames: innermost first."""
    inner = 0
    for at, frame in enumerate(frames):
        if is_own_file(frame["filename"]):
            inner = at + 1
        elif frame["filename"] != _OPERATORS:
            break
    return [frame for frame in frames[inner:] if not is_own_file(frame["filename"])]
