"""Footprint audit: runs an operation on copies with only the rows it declared, checks its writes.

The ordering oracle is as good as the footprints that operations declare. Under audit an undeclared
read sees poison, so that the stepwise oracle notices, and an undeclared write raises.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from racegate.device.launches import Launch
from racegate.device.masks import mask_of
from racegate.device.uses import FootprintError, Use
from racegate_kernels.backend import Backend
from racegate_kernels.poison import poison_of


def run_audited(
    launch: Launch, backend: Backend, operation: str, views: Sequence[np.ndarray]
) -> None:
    """kernel(backend, *copies, *constants, **scalars), changes of declared rows copied back.

    operation: the name in the trace; views: [rows, ...] each, one per use, of its memory
    Raises FootprintError if the kernel changed a row that it did not declare as written.
    """
    uses = launch.uses
    copies = [_copy_of_declared(use, view) for use, view in zip(uses, views, strict=True)]
    before = [copy.tobytes() for copy in copies]
    launch.kernel(backend, *copies, *launch.constants, **launch.scalars)
    for use, view, copy, old in zip(uses, views, copies, before, strict=True):
        new = copy.tobytes()
        if new == old:
            continue
        rows = _changed_rows(new, old, row_count=len(copy))
        mask = use.written_mask
        allowed = (-1 if mask is None else mask) if use.is_write else 0
        if allowed != -1 and mask_of(rows.tolist()) & ~allowed:
            name = use.buffer.name
            text = f"{operation} wrote undeclared rows of {name}: {rows}"
            raise FootprintError(text, operation=operation, buffer=name)
        view[rows] = copy[rows]


def _copy_of_declared(use: Use, view: np.ndarray) -> np.ndarray:
    if not use.is_read:
        return _poisoned(view.shape, view.dtype).copy()
    copy = np.array(view, order="C")
    mask = use.known_mask
    if mask is not None:
        copy[_rows_outside(mask, len(copy))] = poison_of(copy.dtype)
    return copy


@lru_cache(256)
def _poisoned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    return np.full(shape, poison_of(dtype), dtype)


@lru_cache(4096)
def _rows_outside(mask: int, row_count: int) -> np.ndarray:
    return np.array([row for row in range(row_count) if not mask >> row & 1], np.intp)


def _changed_rows(new: bytes, old: bytes, *, row_count: int) -> np.ndarray:
    changed = np.frombuffer(new, np.uint8) != np.frombuffer(old, np.uint8)
    rows: np.ndarray = changed.reshape(row_count, -1).any(axis=1).nonzero()[0]
    return rows
