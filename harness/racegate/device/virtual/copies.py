"""Copies on the virtual device: what they touch, and what they do when they run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from racegate.device.masks import mask_of, prefix_mask
from racegate.device.memo import OpMemo
from racegate.device.memory import Storage, VirtualBuffer
from racegate.history.trace import Access

Copy = tuple[tuple[Access, ...], Callable[[], None]]


def copy_range(
    target: VirtualBuffer, source: VirtualBuffer, first: int, end: int, memo: OpMemo | None
) -> Copy:
    """Rows first .. end - 1, with their owners."""
    mask = prefix_mask(end) ^ prefix_mask(first)
    to, origin = _live(target, source)

    def run() -> None:
        to.array[first:end] = origin.array[first:end]
        to.owners[first:end] = origin.owners[first:end]
        if memo is not None:
            to.version = memo.version("copy", to.version, origin.version, first, end)

    return (source.access(mask, is_write=False), target.access(mask, is_write=True)), run


def scatter_blocks(
    target: VirtualBuffer, source: VirtualBuffer, blocks: Sequence[int], memo: OpMemo | None
) -> Copy:
    """Row i of the source to block blocks[i] of a pool. Blocks have no owners."""
    to, origin = _live(target, source)
    places, count = np.array(blocks, np.int64), len(blocks)

    def run() -> None:
        to.array[places] = origin.array[:count]
        if memo is not None:
            to.version = memo.version("scatter", to.version, origin.version, tuple(blocks))

    read = source.access(prefix_mask(count), is_write=False)
    return (read, target.access(mask_of(blocks), is_write=True)), run


def gather_blocks(
    target: VirtualBuffer, source: VirtualBuffer, blocks: Sequence[int], memo: OpMemo | None
) -> Copy:
    """Block blocks[i] of a pool to row i of the target."""
    to, origin = _live(target, source)
    places, count = np.array(blocks, np.int64), len(blocks)

    def run() -> None:
        to.array[:count] = origin.array[places]
        if memo is not None:
            to.version = memo.version("gather", to.version, origin.version, tuple(blocks))

    read = source.access(mask_of(blocks), is_write=False)
    return (read, target.access(prefix_mask(count), is_write=True)), run


def _live(target: VirtualBuffer, source: VirtualBuffer) -> tuple[Storage, Storage]:
    assert not target.is_free, f"a copy from {source.name} to {target.name}, which is free"
    assert not source.is_free, f"a copy to {target.name} from {source.name}, which is free"
    return target.storage, source.storage
