"""Reductions and scans of Triton's interpreter with a function that the kernel names: on whole
slices, where the interpreter goes element by element.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

_Arrays = tuple[Any, ...]


def combine_slices(interpreter: Any) -> None:
    """interpreter: triton.runtime.interpreter. The function combines neighbours, as compiled: it is
    associative, and need not commute.
    """
    interpreter.ReduceOps.generic_reduce = _reduce
    interpreter.ReduceOps.min_max = _finding_a_place(interpreter.ReduceOps.min_max)
    interpreter.ScanOps.generic_scan = _scan


def _finding_a_place(plain: Any) -> Any:
    """The place of the largest of nothing but NaN is the first: compiled, it is any of them, and
    the interpreter ends.
    """

    def min_max(ops: Any, given: Any, val_reduce_op: Any, idx_reduce_op: Any = None) -> Any:
        def place(data: Any, *, axis: Any, keepdims: Any) -> Any:
            known = data
            if data.dtype.kind == "f":
                nothing = np.isnan(data).all(axis=axis, keepdims=True)
                known = np.where(nothing, data.dtype.type(0), data)
            return idx_reduce_op(known, axis=axis, keepdims=keepdims)

        return plain(ops, given, val_reduce_op, idx_reduce_op and place)

    return min_max


def _reduce(ops: Any, given: Any) -> list[Any]:
    arrays = tuple(one.handle.data for one in given)
    rank, axis = arrays[0].ndim, ops.axis
    if axis is None:
        arrays, axis = tuple(one.reshape(-1) for one in arrays), 0
    combine = _combining(ops, given)
    while (length := arrays[0].shape[axis]) > 1:
        even = length // 2 * 2
        pairs = (_part(arrays, axis, slice(first, even, 2)) for first in (0, 1))
        made = combine(*pairs)
        if even < length:
            rest = _part(arrays, axis, slice(even, length))
            made = tuple(np.concatenate(both, axis) for both in zip(made, rest, strict=True))
        arrays = made
    return [_packed(ops, data, one.dtype, rank) for data, one in zip(arrays, given, strict=True)]


def _packed(ops: Any, data: Any, dtype: Any, rank: int) -> Any:
    """A result, whose axis has one element left."""
    if ops.keep_dims:
        return ops.to_tensor(data if ops.axis is not None else data.reshape((1,) * rank), dtype)
    if ops.axis is None:
        return ops.to_tensor(data.item(), dtype)
    return ops.to_tensor(data.squeeze(ops.axis), dtype)


def _scan(ops: Any, given: Any) -> list[Any]:
    arrays, axis = tuple(one.handle.data for one in given), ops.axis
    combine = _combining(ops, given)
    done = [_part(arrays, axis, slice(0, 1))]
    for index in range(1, arrays[0].shape[axis]):
        done.append(combine(done[-1], _part(arrays, axis, slice(index, index + 1))))
    joined = (np.concatenate(parts, axis) for parts in zip(*done, strict=True))
    return [ops.to_tensor(data, one.dtype) for data, one in zip(joined, given, strict=True)]


def _combining(ops: Any, given: Any) -> Callable[[_Arrays, _Arrays], _Arrays]:
    """The kernel's function, on arrays."""
    dtypes = [one.dtype for one in given]

    def combine(first: _Arrays, second: _Arrays) -> _Arrays:
        shape = first[0].shape
        sides = (
            [ops.to_tensor(data, dtype) for data, dtype in zip(side, dtypes, strict=True)]
            for side in (first, second)
        )
        made = ops.combine_fn.fn(*(one for side in sides for one in side))
        parts = made if isinstance(made, tuple) else (made,)
        return tuple(
            np.broadcast_to(getattr(getattr(part, "handle", None), "data", part), shape).astype(
                data.dtype, copy=False
            )
            for part, data in zip(parts, first, strict=True)
        )

    return combine


def _part(arrays: _Arrays, axis: int, which: slice) -> _Arrays:
    at = (slice(None),) * (axis % arrays[0].ndim) + (which,)
    return tuple(one[at] for one in arrays)
