"""Results of operators that run later, as meta tensors: what was found out once is known."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import torch

from racegate.interpose.kernels.aliases import Tensor, tensors_in
from racegate.interpose.kernels.binding import PLAIN, Bound
from racegate.interpose.kernels.later import shapes_of
from racegate.interpose.kernels.operators import Operator
from racegate.interpose.native import factories

_KNOWN_MAX = 1 << 13
_TYPE = "torch."
Like = tuple[tuple[int, ...], tuple[int, ...], str]  # size, stride, type


class ResultShape(msgspec.Struct, frozen=True, array_like=True):
    """A result. parts: of each of its tensors the place among those given, or what it is like"""

    kind: Literal["tensor", "list", "tuple"]
    parts: tuple[int | Like, ...]

    def result(self, given: list[Tensor]) -> Any:
        """As the operator says it."""
        made = [given[part] if isinstance(part, int) else _meta(*part) for part in self.parts]
        if self.kind == "tensor":
            return made[0]
        return made if self.kind == "list" else tuple(made)


class Shapes:
    """Two calls of an operator with tensors of the same shapes, strides and types, and with the
    same other values, have results of the same shapes, strides and types.
    """

    def __init__(self) -> None:
        self._known: dict[str, ResultShape] = {}
        self._new: dict[str, ResultShape] = {}

    def of(self, operator: Operator, bound: Bound) -> Any:
        """The result as meta tensors, None for none; arguments that are results stand for
        themselves.
        """
        if not operator.overload._schema.returns:  # not all of these know shapes
            return None
        given = tensors_in([bound.args, list(bound.kwargs.values())])
        call = _call(operator, bound, given)
        known = self._known.get(call)
        if known is not None:
            return known.result(given)
        made = shapes_of(operator, bound)
        shaped = _shaped(made, given) if call else None
        if shaped is not None and len(self._known) < _KNOWN_MAX:
            self._known[call] = self._new[call] = shaped
        return made

    def dump(self) -> bytes:
        """What was found out here, for another process of the same program; empty: nothing."""
        return msgspec.msgpack.encode(self._new) if self._new else b""

    def load(self, data: bytes) -> None:
        """Adds what another process has found out."""
        if data:
            self._known |= msgspec.msgpack.decode(data, type=dict[str, ResultShape])


def _meta(size: tuple[int, ...], stride: tuple[int, ...], dtype: str) -> Tensor:
    return factories.empty_strided(size, stride, dtype=getattr(torch, dtype), device="meta")


def _shaped(made: Any, given: list[Tensor]) -> ResultShape | None:
    """None for a result that is more than tensors."""
    values = list(made) if isinstance(made, (list, tuple)) else [made]
    if not all(type(value) is torch.Tensor for value in values):
        return None
    places = {id(tensor): place for place, tensor in enumerate(given)}
    parts = tuple(
        places.get(id(value), (tuple(value.size()), value.stride(), _name(value.dtype)))
        for value in values
    )
    if isinstance(made, torch.Tensor):
        return ResultShape("tensor", parts)
    return ResultShape("list" if isinstance(made, list) else "tuple", parts)


def _call(operator: Operator, bound: Bound, given: list[Tensor]) -> str:
    """All that the result's shapes follow from; empty if a text does not tell it all: a tensor that
    is given twice may be written once.
    """
    if len({id(tensor) for tensor in given}) < len(given):
        return ""
    words = [_word(value) for value in (*bound.args, *bound.kwargs.values())]
    if "" in words:
        return ""
    return "|".join((operator.name, str(torch.get_default_dtype()), *bound.kwargs, *words))


def _word(value: Any) -> str:
    """Empty for what text does not tell apart."""
    if isinstance(value, torch.Tensor):
        return f"{tuple(value.size())}{value.stride()}{value.dtype}"
    if isinstance(value, (list, tuple)):
        words = [_word(item) for item in value]
        return "" if "" in words else f"{type(value).__name__}{words}"
    return repr(value) if isinstance(value, (*PLAIN, torch.device)) else ""


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix(_TYPE)
