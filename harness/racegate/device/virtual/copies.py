"""Copies on the virtual device: what they touch, and what they do when they run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from racegate.device.masks import mask_of, prefix_mask
from racegate.device.memory import Buffer, require_live
from racegate.device.virtual.memo import OpMemo
from racegate.history.trace import Access

Copy = tuple[tuple[Access, ...], Callable[[], None]]


def copy_range(target: Buffer, source: Buffer, first: int, end: int, memo: OpMemo | None) -> Copy:
    """Rows first .. end - 1, with their owners."""
    mask = prefix_mask(end) ^ prefix_mask(first)
    require_live(target, source)
    to, origin = target.storage, source.storage

    def run() -> None:
        to.array[first:end] = origin.array[first:end]
        to.owners[first:end] = origin.owners[first:end]
        if memo is not None:
            to.content = memo.content(to.array, "copy", to.content, origin.content, first, end)

    return (source.access(mask, is_write=False), target.access(mask, is_write=True)), run


def scatter_blocks(
    target: Buffer, source: Buffer, blocks: Sequence[int], memo: OpMemo | None
) -> Copy:
    """Row i of the source to block blocks[i] of a pool. Blocks have no owners."""
    require_live(target, source)
    to, origin = target.storage, source.storage
    places, count, key = np.array(blocks, np.int64), len(blocks), tuple(blocks)

    def run() -> None:
        to.array[places] = origin.array[:count]
        if memo is not None:
            to.content = memo.content(to.array, "scatter", to.content, origin.content, key)

    read = source.access(prefix_mask(count), is_write=False)
    return (read, target.access(mask_of(blocks), is_write=True)), run


def gather_blocks(
    target: Buffer, source: Buffer, blocks: Sequence[int], memo: OpMemo | None
) -> Copy:
    """Block blocks[i] of a pool to row i of the target."""
    require_live(target, source)
    to, origin = target.storage, source.storage
    places, count, key = np.array(blocks, np.int64), len(blocks), tuple(blocks)

    def run() -> None:
        to.array[:count] = origin.array[places]
        if memo is not None:
            to.content = memo.content(to.array, "gather", to.content, origin.content, key)

    read = source.access(mask_of(blocks), is_write=False)
    return (read, target.access(prefix_mask(count), is_write=True)), run
