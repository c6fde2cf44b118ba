"""Copies on the virtual device: what they do when they run."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from racegate.device.memory import Buffer
from racegate.device.virtual.memo import OpMemo


def copy_range(
    target: Buffer, source: Buffer, first: int, end: int, memo: OpMemo | None
) -> Callable[[], None]:
    """Rows first .. end - 1, with their owners."""
    to, origin = target.storage, source.storage

    def run() -> None:
        to.array[first:end] = origin.array[first:end]
        to.owners[first:end] = origin.owners[first:end]
        if memo is not None:
            to.content = memo.content(to.array, "copy", to.content, origin.content, first, end)

    return run


def copy_blocks(
    target: Buffer,
    source: Buffer,
    into: tuple[int, ...],
    out_of: tuple[int, ...],
    memo: OpMemo | None,
) -> Callable[[], None]:
    """Row out_of[i] of the source to row into[i] of the target. Blocks have no owners."""
    to, origin = target.storage, source.storage
    places, rows = np.array(into, np.int64), np.array(out_of, np.int64)

    def run() -> None:
        to.array[places] = origin.array[rows]
        if memo is not None:
            key = ("blocks", to.content, origin.content, into, out_of)
            to.content = memo.content(to.array, *key)

    return run
