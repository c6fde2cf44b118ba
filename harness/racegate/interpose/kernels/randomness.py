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


def draw(operator: Operator, bound: Bound) -> Any:
    """Runs a random operator with its generator's twin, the default one's if it was given none."""
    default = torch.cuda.default_generators[current_gpu()]
    return _drawn(operator, bound, default, lambda generator: generator)


def captured(operator: Operator, bound: Bound) -> Callable[[], Any]:
    """What a graph draws at each replay: with the states that its generators have now, whatever
    states they are given later.
    """
    states = {id(one): one.graphsafe_get_state() for one in _generators_in(bound)}
    default = torch.cuda.default_generators[current_gpu()].graphsafe_get_state()
    return lambda: _drawn(operator, bound, default, lambda one: states[id(one)])


def _drawn(operator: Operator, bound: Bound, default: Any, state_of: Replace) -> Any:
    """The result; the states that were drawn from go on, unless there was nothing to draw."""
    given = _generators_in(bound)
    states = [state_of(one) for one in given if one.device.type == "cuda"] if given else [default]
    result = _run(operator, bound, default, lambda one: _twin_of(state_of(one)))
    if not _is_empty(result):
        for state in states:
            state.set_offset(state.get_offset() + _STEP)
    return result


def _twin_of(generator: Any) -> Any:
    """The CPU generator that stands for a CUDA one. What it draws follows from the seed and the
    offset alone, as on a GPU; the offset counts the calls.
    """
    twin = torch.Generator("cpu")
    calls = generator.get_offset() // _STEP
    twin.manual_seed((generator.initial_seed() + 0x9E3779B97F4A7C15 * calls) & _MASK)
    return twin


def _run(operator: Operator, bound: Bound, default: Any, twin: Replace) -> Any:
    """default: the state that is drawn from where no generator is given; twin: of one that is"""
    call, args, kwargs = bound.call, bound.args, bound.kwargs
    if _generators_in(bound):
        named = {name: _replaced(value, twin) for name, value in kwargs.items()}
        return call(*(_replaced(value, twin) for value in args), **named)
    own = _twin_of(default)
    if operator.takes_generator:
        return call(*args, **{**kwargs, "generator": own})
    process = torch.default_generator
    saved = process.get_state()
    process.set_state(own.get_state())
    try:
        return call(*args, **kwargs)
    finally:
        process.set_state(saved)


def _is_empty(result: Any) -> bool:
    """Whether it has no elements: a GPU launches no kernel for it then, and draws nothing (poisson
    alone moves its generator on).
    """
    tensors = result if isinstance(result, (tuple, list)) else (result,)
    return all(isinstance(one, torch.Tensor) and not one.numel() for one in tensors)


def _generators_in(bound: Bound) -> list[Any]:
    values = (*bound.args, *bound.kwargs.values())
    return [value for value in values if isinstance(value, torch.Generator)]


def _replaced(value: Any, twin: Replace) -> Any:
    is_cuda = isinstance(value, torch.Generator) and value.device.type == "cuda"
    return twin(value) if is_cuda else value
