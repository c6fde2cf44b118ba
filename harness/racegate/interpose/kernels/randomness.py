"""Random numbers of the virtual device: CPU generators that follow the state of the CUDA ones."""

from __future__ import annotations

from typing import Any

import torch

from racegate.interpose.kernels.binding import Bound
from racegate.interpose.kernels.operators import Operator

_STEP = 4  # torch's CUDA generators count in fours
_MASK = (1 << 63) - 1


class Generators:
    """A CPU twin per CUDA generator. Seeding one seeds the other; its offset counts the calls."""

    def __init__(self) -> None:
        self._twins: dict[int, tuple[Any, Any, int, int]] = {}

    def twin(self, generator: Any) -> Any:
        """The CPU generator that stands for a CUDA one, in the state that the CUDA one is in."""
        known = self._twins.get(id(generator))
        seed, offset = generator.initial_seed(), generator.get_offset()
        if known is None or known[2:] != (seed, offset):
            twin = torch.Generator("cpu")
            twin.manual_seed((seed + 0x9E3779B97F4A7C15 * (offset // _STEP)) & _MASK)
        else:
            twin = known[1]
        generator.set_offset(offset + _STEP)
        self._twins[id(generator)] = (generator, twin, seed, offset + _STEP)
        return twin

    def _twinned(self, value: Any) -> Any:
        is_ours = isinstance(value, torch.Generator) and value.device.type == "cuda"
        return self.twin(value) if is_ours else value

    def call(self, operator: Operator, bound: Bound) -> Any:
        """Runs a random operator with its generator's twin, the default one's if it was given
        none.
        """
        call, args, kwargs = bound.call, bound.args, bound.kwargs
        if any(isinstance(value, torch.Generator) for value in (*args, *kwargs.values())):
            named = {name: self._twinned(value) for name, value in kwargs.items()}
            return call(*map(self._twinned, args), **named)
        twin = self.twin(torch.cuda.default_generators[0])
        if operator.takes_generator:
            return call(*args, **{**kwargs, "generator": twin})
        default = torch.default_generator
        saved = default.get_state()
        default.set_state(twin.get_state())
        try:
            return call(*args, **kwargs)
        finally:
            twin.set_state(default.get_state())
            default.set_state(saved)
