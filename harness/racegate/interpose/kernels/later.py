"""What an operator needs that runs later: its results' shapes now, and copies of host arguments."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, isfinite
from typing import Any

import torch

from racegate.interpose.device.session import Session
from racegate.interpose.kernels.aliases import Tensor, tensors_in
from racegate.interpose.kernels.binding import Bound
from racegate.interpose.kernels.operators import Operator
from racegate.interpose.native import factories


def stage(session: Session, bound: Bound) -> None:
    """Host tensors of a kernel that runs later: their values now.

    A tensor of no dimensions is often a Python number, which its clone would not be.
    """
    bound.args = [_staged(session, value, bound) for value in bound.args]
    bound.kwargs = {name: _staged(session, value, bound) for name, value in bound.kwargs.items()}


def _staged(session: Session, value: Any, bound: Bound) -> Any:
    if isinstance(value, torch.Tensor):
        is_shared = value.dim() or session.spans.find(value.data_ptr()) is not None
        return value.clone() if id(value) not in bound.back and is_shared else value
    if isinstance(value, (list, tuple)):
        return type(value)(_staged(session, item, bound) for item in value)
    return value


def grow_outputs(operator: Operator, kwargs: dict[str, Any], bound: Bound) -> bool:
    """`out=` tensors of no elements take the size of the result, as torch's kernels do.

    Returns whether one grew: then the arguments have to be bound again.
    """
    outputs = [kwargs[name] for name in operator.writes_named if name in kwargs]
    if all(t.numel() for value in outputs for t in tensors_in(value) if t.is_cuda):
        return False
    size = size_by_numbers(operator.name, bound.args, outputs)
    if size is not None:
        grown = bool(outputs[0].size() != size)
        outputs[0].resize_(size)
        return grown
    meta_kwargs = _to_meta(bound.kwargs, {})
    _caller(operator, bound)(*_to_meta(bound.args, {}), **meta_kwargs)
    has_grown = False
    for name in operator.writes_named & kwargs.keys():
        pairs = zip(tensors_in(kwargs[name]), tensors_in(meta_kwargs[name]), strict=True)
        for tensor, shaped in pairs:
            if tensor.size() != shaped.size():
                tensor.resize_(shaped.size())
                has_grown = True
    return has_grown


def size_by_numbers(name: str, args: list[Any], outputs: list[Any]) -> tuple[int, ...] | None:
    """The size of what is made of numbers alone, as torch's kernels have it; None: to be asked.

    What torch asks is written in Python: its first call in a process imports the compiler.
    """
    match name, args:
        case "aten::eye.out", [int(n)] if n >= 0:
            return n, n
        case "aten::eye.m_out", [int(n), int(m)] if n >= 0 and m >= 0:
            return n, m
        case (("aten::linspace.out" | "aten::logspace.out"), [_, _, int(steps), *_]) if steps >= 0:
            return (steps,)
        case "aten::arange.start_out", [start, end]:  # torch leaves out a step that is 1
            return _size_of_range(start, end, 1, outputs[0].dtype)
        case "aten::arange.start_out", [start, end, step]:
            return _size_of_range(start, end, step, outputs[0].dtype)
    return None


def _size_of_range(start: Any, end: Any, step: Any, dtype: torch.dtype) -> tuple[int] | None:
    """None: torch refuses it, or counts otherwise."""
    numbers = (start, end, step)
    are_whole = all(isinstance(number, int) for number in numbers)
    if not all(isinstance(number, (int, float)) and isfinite(number) for number in numbers):
        return None
    if step == 0 or (end - start) * step < 0 or (dtype == torch.int64 and not are_whole):
        return None
    if dtype == torch.int64:
        return (-((start - end) // step),)
    count = (float(end) - float(start)) / float(step)
    return (ceil(count),) if isfinite(count) else None


def shapes_of(operator: Operator, bound: Bound) -> Any:
    """The result as meta tensors; arguments that are results stand for themselves."""
    stands_for: dict[int, Tensor] = {}
    kwargs = _to_meta(bound.kwargs, stands_for)
    made = _caller(operator, bound)(*_to_meta(bound.args, stands_for), **kwargs)
    return _restored(made, stands_for)


def shape_only(value: Any) -> Any:
    """Meta tensors like those of a result that was computed."""
    return _to_meta(value, {})


def _caller(operator: Operator, bound: Bound) -> Callable[..., Any]:
    """What also computes shapes: the CPU kernel alone does not."""
    return operator.shaping if bound.call is operator.kernel else bound.call


def _restored(value: Any, stands_for: dict[int, Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        return stands_for.get(id(value), value)
    if isinstance(value, (list, tuple)):
        return type(value)(_restored(item, stands_for) for item in value)
    return value


def _to_meta(value: Any, back: dict[int, Tensor]) -> Any:
    """back: what each meta tensor stands for, by its id."""
    if isinstance(value, torch.Tensor):
        meta = factories.empty_strided(
            value.size(), value.stride(), dtype=value.dtype, device="meta"
        )
        back[id(meta)] = value
        back[-id(meta)] = meta
        return meta
    if isinstance(value, (list, tuple)):
        return type(value)(_to_meta(item, back) for item in value)
    if isinstance(value, dict):
        return {key: _to_meta(item, back) for key, item in value.items()}
    if isinstance(value, torch.device):
        return torch.device("meta")
    if isinstance(value, torch.Generator):  # draws nothing for shapes
        return None
    return value
