"""The arguments of one operator as its CPU kernel gets them, and the bytes that they stand for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from racegate.interpose.device.session import Session
from racegate.interpose.kernels import indexing
from racegate.interpose.kernels.aliases import Tensor, find_alias
from racegate.interpose.kernels.operators import Operator
from racegate.order.ranges import Ranges

_CPU = torch.device("cpu")
TENSORS = (torch.Tensor, torch.nn.Parameter)  # types of tensors that hold bytes themselves
# Types of arguments that are passed on as they are
PLAIN = (int, float, bool, type(None), str, torch.dtype, complex, torch.layout, torch.memory_format)
_NOTHING: dict[int, Ranges] = {}


class Bound:
    """call: what computes it; args, kwargs: with CPU aliases in place of CUDA tensors, which they
    keep alive.

    back: the CUDA tensor of each alias, by the alias's id; a written one if several have it
    """

    __slots__ = ("args", "back", "call", "kwargs", "reads", "writes")

    def __init__(self, call: Callable[..., Any]) -> None:
        self.call = call
        self.args: list[Any] = []
        self.kwargs: dict[str, Any] = {}
        self.back: dict[int, Tensor] = {}
        self.reads: list[tuple[int, int]] = []
        self.writes: list[tuple[int, int]] = []


def bind(
    session: Session, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Bound:
    """Raises NoAlias if a tensor has none."""
    exact = indexing.touched(session, operator, args) if operator.is_indexed else _NOTHING
    bound = Bound(operator.kernel or operator.overload)
    for position, value in enumerate(args):
        if type(value) not in PLAIN:
            parts = bound.writes if position in operator.writes else bound.reads
            converted = _convert(session, value, bound, (parts, exact.get(position)))
            bound.args.append(converted)
            continue
        bound.args.append(value)
        if value is not None and position in operator.tensors:
            bound.call = operator.with_number
    for name, value in kwargs.items():
        parts = bound.writes if name in operator.writes_named else bound.reads
        bound.kwargs[name] = _convert(session, value, bound, (parts, None))
    return bound


def _convert(
    session: Session,
    value: Any,
    bound: Bound,
    effect: tuple[list[tuple[int, int]], Ranges | None],
) -> Any:
    """effect: where its bytes go, and its bytes if they are fewer than the whole.

    No closure of `bind`: one that calls itself is a cycle, and would keep the program's tensors.
    """
    if isinstance(value, torch.Tensor):
        if not value.is_cuda:
            return value
        parts, exact = effect
        alias = find_alias(session, value)
        tensor = alias.tensor
        parts += alias.ranges if exact is None else exact
        if parts is bound.writes or id(tensor) not in bound.back:
            bound.back[id(tensor)] = value
        return tensor
    if isinstance(value, (list, tuple)):
        return type(value)(_convert(session, item, bound, effect) for item in value)
    if isinstance(value, torch.device) and value.type == "cuda":
        return _CPU
    return value
