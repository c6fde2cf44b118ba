"""Random numbers of the virtual device: CPU generators that follow the state of the CUDA ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from racegate.interpose.kernels.binding import Bound
from racegate.interpose.kernels.operators import Operator
from racegate.interpose.native.streams import current_gpu

_STEP = 4  # torch's CUDA generators count in fours
_MASK = (1 << 63) - 1
Replace = Callable[[Any], Any]


def twin_of(generator: Any) -> Any:
    """The CPU generator that stands for a CUDA one. What it draws follows from the seed and the
    offset alone, as on a GPU; the offset counts the calls.
    """
    offset = generator.get_offset()
    twin = torch.Generator("cpu")
    twin.manual_seed((generator.initial_seed() + 0x9E3779B97F4A7C15 * (offset // _STEP)) & _MASK)
    generator.set_offset(offset + _STEP)
    return twin


def draw(operator: Operator, bound: Bound) -> Any:
    """Runs a random operator with its generator's twin, the default one's if it was given none."""
    return _drawn(operator, bound, torch.cuda.default_generators[current_gpu()], twin_of)


def captured(operator: Operator, bound: Bound) -> Callable[[], Any]:
    """What a graph draws at each replay: with the states that its generators have now, whatever
    states they are given later.
    """
    states = {id(one): one.graphsafe_get_state() for one in _generators_in(bound)}
    default = torch.cuda.default_generators[current_gpu()].graphsafe_get_state()
    return lambda: _drawn(operator, bound, default, lambda one: twin_of(states[id(one)]))


def _drawn(operator: Operator, bound: Bound, default: Any, twin: Replace) -> Any:
    call, args, kwargs = bound.call, bound.args, bound.kwargs
    if _generators_in(bound):
        named = {name: _replaced(value, twin) for name, value in kwargs.items()}
        return call(*(_replaced(value, twin) for value in args), **named)
    own = twin_of(default)
    if operator.takes_generator:
        return call(*args, **{**kwargs, "generator": own})
    process = torch.default_generator
    saved = process.get_state()
    process.set_state(own.get_state())
    try:
        return call(*args, **kwargs)
    finally:
        process.set_state(saved)


def _generators_in(bound: Bound) -> list[Any]:
    values = (*bound.args, *bound.kwargs.values())
    return [value for value in values if isinstance(value, torch.Generator)]


def _replaced(value: Any, twin: Replace) -> Any:
    is_cuda = isinstance(value, torch.Generator) and value.device.type == "cuda"
    return twin(value) if is_cuda else value
