"""Bytes that index operators touch, by their indices: rows of other indices are no race."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch

from racegate.interpose.device.session import Session
from racegate.interpose.kernels.aliases import COARSE, Tensor, alias_of, tensors_in
from racegate.interpose.kernels.operators import PICKS, Operator
from racegate.interpose.native import factories
from racegate.order.ranges import (
    Ranges,
    element_ranges,
    is_coarse,
    merged,
    strided_ranges,
)

_ELEMENTS_MAX = 1 << 22
_MASKS = (torch.bool, torch.uint8)


def reads_a_size(operator: Operator, args: tuple[Any, ...]) -> bool:
    """Whether a mask among the indices makes torch wait for its count."""
    if PICKS.get(operator.short, (0, ""))[1] != "index" or len(args) < 2:
        return False
    masked = [index for index in tensors_in(args[1]) if index.dtype in _MASKS and index.is_cuda]
    return bool(masked)


def spelled_out(operator: Operator, args: Any) -> Any:
    """Masks of the host among the indices, as the indices that they pick: so the shape of the
    result is known before the operator runs.
    """
    if PICKS.get(operator.short, (0, ""))[1] != "index" or len(args) < 2:
        return args
    indices: list[Any] = []
    for index in args[1]:
        is_mask = isinstance(index, torch.Tensor) and index.dtype in _MASKS
        indices.extend(index.nonzero(as_tuple=True) if is_mask else (index,))
    return type(args)((args[0], indices, *args[2:]))


def touched(session: Session, operator: Operator, args: tuple[Any, ...]) -> dict[int, Ranges]:
    """Ranges of the picked argument, by its position; empty if it is taken as a whole."""
    position, how = PICKS[operator.short]
    source = args[position]
    if not source.is_cuda or not source.numel() or not session.is_recording:
        return {}
    with session.own():
        if how == "mask" and source.numel() > _ELEMENTS_MAX:
            session.not_seen["index operators taken as a whole (large)"] += 1
            return {}
        indices = _indices(session, how, args)
        if _is_by_rows(how, args, indices):
            return {position: _rows(session, source, indices[0])}
        if source.numel() > _ELEMENTS_MAX:
            session.not_seen["index operators taken as a whole (large)"] += 1
            return {}
        offsets = _element_offsets(source)
        picked = _pick(how, offsets, args, indices).reshape(-1).unique().tolist()
    return {position: element_ranges(source.data_ptr(), picked, source.itemsize)}


def _indices(session: Session, how: str, args: tuple[Any, ...]) -> list[Tensor]:
    given = args[1] if how in ("index", "rows", "mask", "take") else args[2]
    if how != "index":
        given = [given]
    return [
        None if index is None else alias_of(session, index) if index.is_cuda else index
        for index in given
    ]


def _is_by_rows(how: str, args: tuple[Any, ...], indices: list[Tensor]) -> bool:
    if how == "rows":
        return True
    if how == "index_select":
        return bool(args[0].dim() and args[1] % args[0].dim() == 0)
    if how != "index" or len(indices) != 1:
        return False
    return bool(indices[0].dim() == 1 or indices[0].dtype not in _MASKS)


def _rows(session: Session, source: Tensor, index: Tensor) -> Ranges:
    """Bytes of whole rows: one row's ranges, moved."""
    if index.dtype in _MASKS:
        index = index.nonzero()
    count = source.shape[0]
    rows = {int(row) % count for row in _values(index if index.dim() == 1 else index.reshape(-1))}
    step, row_ranges, is_whole = _row(tuple(source.size()), source.stride(), source.itemsize)
    if is_whole:
        session.not_seen[COARSE] += 1
    start = source.data_ptr()
    places = [start + row * step for row in rows]
    return merged([(place + low, place + high) for place in places for low, high in row_ranges])


@lru_cache(64)  # a program asks for the rows of few shapes, many times
def _row(
    shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int
) -> tuple[int, Ranges, bool]:
    """Bytes from one row to the next, those of a row from its first on, and whether they are more
    than the row's own.
    """
    step, *inner = (stride * itemsize for stride in strides)
    is_whole = is_coarse(shape[1:], inner, itemsize)
    return step, strided_ranges(0, shape[1:], inner, itemsize), is_whole


def _values(index: Tensor) -> list[Any]:
    """Past the `tolist` that reports what the program reads."""
    values: list[Any] = torch._C.TensorBase.tolist(index)
    return values


def _element_offsets(source: Tensor) -> Tensor:
    """Per element of the source, its place in elements from the first."""
    offsets = factories.zeros((), dtype=torch.int64, device="cpu")
    for size, stride in zip(source.size(), source.stride(), strict=True):
        offsets = offsets.unsqueeze(-1) + factories.arange(size, device="cpu") * stride
    return offsets


def _pick(how: str, offsets: Tensor, args: tuple[Any, ...], indices: list[Tensor]) -> Tensor:
    if how == "index":
        return torch.ops.aten.index.Tensor(offsets, indices)
    if how == "index_select":
        return offsets.index_select(args[1], indices[0])
    if how == "gather":
        return offsets.gather(args[1], indices[0])
    if how == "mask":
        return offsets.masked_select(indices[0])
    return offsets.take(indices[0])
