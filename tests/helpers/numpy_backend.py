"""The eager twins for torch tensors in CPU memory, so that a whole engine runs on CudaDevice fast.

Where the twins know uint32 the device has int32 with the same bits: which parameters are such
quantities is known by their names.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from racegate_kernels.backend import EAGER, Backend

QUANTITIES = frozenset(
    ("x", "y", "z", "o", "q", "k", "v", "b", "c", "g", "dt", "dt_bias", "a_log", "skip", "weight"),
) | {
    "bias",
    "embed",
    "logits",
    "state",
    "window",
    "entries",
    "cache",
    "seed",
    "truth_digest",
    "pool",
}


def numpy_backend() -> Backend:
    """Every twin behind the signature of its launcher."""
    names = [field.name for field in dataclasses.fields(Backend)]
    return Backend(**{name: _on_tensors(getattr(EAGER, name)) for name in names})


def _on_tensors(twin: Callable[..., Any]) -> Callable[..., Any]:
    parameters = list(inspect.signature(twin).parameters)

    def kernel(*tensors: torch.Tensor | None, **options: Any) -> torch.Tensor | None:
        named = dict(zip(parameters, tensors, strict=False))
        arrays = [_array(name, tensor) for name, tensor in named.items()]
        returned = twin(*arrays, **{name: _array(name, x) for name, x in options.items()})
        if returned is None:
            return None
        bits = returned.view(np.int32) if returned.dtype == np.uint32 else returned
        return torch.from_numpy(np.ascontiguousarray(bits))

    return kernel


def _array(name: str, value: Any) -> Any:
    """Tensors as the twins have them; numbers, and what is left out, as they are."""
    if not isinstance(value, torch.Tensor):
        return value
    return _bits(value) if name in QUANTITIES else value.numpy()


def _bits(tensor: torch.Tensor) -> np.ndarray:
    """The tensor's memory, as the twins have it."""
    array: np.ndarray = tensor.numpy()
    return array.view(np.uint32) if array.dtype == np.int32 else array
