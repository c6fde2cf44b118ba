"""Runs a kernel's eager twin, its twin in C and its Triton launcher on equal inputs; compares all
they changed.

On a machine with a GPU the launchers run there; elsewhere under Triton's interpreter, on NumPy's
memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch

from racegate.device.virtual.compiled import load_compiled
from racegate_kernels.backend import EAGER, Backend, triton_backend
from racegate_kernels.poison import POISON_I32, poison_of

pytest.importorskip("triton", reason="has wheels for Linux only")
TRITON = triton_backend()
COMPILED, _ = load_compiled()
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

# Both sides sum in float32 in different orders. Exact quantities are compared without tolerance.
FLOAT_TOLERANCE = 2e-5

GUARD = 64
CANARY = 77

DTYPES = pytest.mark.parametrize("dtype", [np.uint32, np.float32], ids=["exact", "float"])
# Poison among floats is NaN, which NumPy, and with it the interpreter, warns of in arithmetic.
POISON_MAKES_NAN = pytest.mark.filterwarnings(
    "ignore:invalid value:RuntimeWarning", "ignore:All-NaN:RuntimeWarning"
)

Array = np.ndarray


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a kernel returned, and its array arguments afterwards."""

    returned: Any
    args: tuple[Any, ...]


def compare(name: str, *args: Any, **options: Any) -> Outcome:
    """Runs all; every array must end equal, and no byte beside an array may change."""
    eager, launched = run_eager(name, *args, **options), run_triton(name, *args, **options)
    assert_same_bits(run_eager(name, *args, backend=COMPILED, **options), eager)
    returned = launched.returned
    if returned is not None:
        returned = _bits_as(returned, like=eager.returned)
    assert_same(returned, eager.returned, what="returned")
    for i, (one, other) in enumerate(zip(launched.args, eager.args, strict=True)):
        if isinstance(one, np.ndarray):
            assert_same(one, other, what=f"argument {i}")
    return Outcome(returned=returned, args=launched.args)


def assert_same_bits(one: Outcome, other: Outcome) -> None:
    """Two twins on the host compute the same words; of floats too, which only one computes."""
    for mine, theirs in zip((one.returned, *one.args), (other.returned, *other.args), strict=True):
        if isinstance(theirs, np.ndarray):
            assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
            assert mine.tobytes() == theirs.tobytes()


def run_eager(name: str, *args: Any, backend: Backend = EAGER, **options: Any) -> Outcome:
    """Runs the twin on copies of its arguments; no byte beside a copy may change."""
    guarded = [_Guarded(x) if isinstance(x, np.ndarray) else x for x in args]
    returned = getattr(backend, name)(*map(_view, guarded), **options)
    _assert_guards_whole(guarded)
    return Outcome(returned=returned, args=tuple(map(_view, guarded)))


def run_triton(name: str, *args: Any, **options: Any) -> Outcome:
    """The same with the launcher. What it returns for uint32 is int32, the bits of it."""
    guarded = [_Guarded(x) if isinstance(x, np.ndarray) else x for x in args]
    tensors = [_tensor(_view(x)) for x in guarded]
    with patch.object(torch.Tensor, "new_empty", _new_poisoned):
        returned = getattr(TRITON, name)(*tensors, **options)
    if isinstance(returned, torch.Tensor):
        returned = returned.cpu().numpy()
    for tensor, one in zip(tensors, guarded, strict=True):
        if isinstance(one, _Guarded):
            one.view[...] = _bits_as(tensor.cpu().numpy(), like=one.view)
    _assert_guards_whole(guarded)
    return Outcome(returned=returned, args=tuple(map(_view, guarded)))


def _new_poisoned(x: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
    """Tensor.new_empty, whose memory is often 0 by chance: an output left out must show."""
    fresh = x.new_zeros(*args, **options)
    return fresh.fill_(float("nan") if fresh.is_floating_point() else POISON_I32)


def _assert_guards_whole(arrays: list[Any]) -> None:
    for x in arrays:
        if isinstance(x, _Guarded):
            x.assert_guards_whole()


def assert_same(actual: Any, expected: Any, *, what: str) -> None:
    if expected is None:
        assert actual is None, what
        return
    assert actual.dtype == expected.dtype, what
    if expected.dtype.kind == "f":
        np.testing.assert_allclose(
            actual, expected, rtol=FLOAT_TOLERANCE, atol=FLOAT_TOLERANCE, err_msg=what
        )
    else:
        np.testing.assert_array_equal(actual, expected, err_msg=what)


def values(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Array:
    """Random model quantities: all 32 bits in exact, standard normal in float."""
    if dtype == np.uint32:
        return rng.integers(0, 2**32, shape, dtype=np.uint32)
    return rng.standard_normal(shape).astype(np.float32)


def sliced(x: Array, *, margin: int = 3) -> Array:
    """x as a slice of a wider projection: rows apart, what follows the first dimension dense."""
    width = int(np.prod(x.shape[1:]))
    wide = np.zeros((len(x), width + 2 * margin), x.dtype)
    view = np.lib.stride_tricks.as_strided(
        wide[:, margin:], x.shape, (wide.strides[0], *np.empty(x.shape, x.dtype).strides[1:])
    )
    view[...] = x
    return view


def int32(*numbers: Any) -> Array:
    return np.array(numbers, np.int32)


def starts(lengths: Any) -> Array:
    """query_start of rows of these lengths."""
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)


def packed(allowed: Array) -> Array:
    """Booleans [..., V] as the bit words [..., ceil(V / 32)] int32 of a grammar mask."""
    words = np.zeros((*allowed.shape[:-1], -(-allowed.shape[-1] // 32)), np.uint32)
    for v in range(allowed.shape[-1]):
        words[..., v // 32] |= allowed[..., v] * np.uint32(1 << v % 32)
    return words.view(np.int32)


def poison(shape: tuple[int, ...], dtype: Any = np.int32) -> Array:
    """What an output holds before a kernel writes it."""
    return np.full(shape, poison_of(dtype), dtype)


class _Guarded:
    """A copy of an array with its strides, inside a larger buffer of canaries."""

    def __init__(self, x: Array) -> None:
        steps = [stride // x.itemsize for stride in x.strides]
        span = 1 + sum((n - 1) * step for n, step in zip(x.shape, steps, strict=True) if n > 0)
        self._buffer = np.full(span + 2 * GUARD, CANARY, x.dtype)
        self._guard = np.full(span + 2 * GUARD, True)
        self.view = self._place(self._buffer, x)
        self.view[...] = x
        self._place(self._guard, x)[...] = False

    def assert_guards_whole(self) -> None:
        np.testing.assert_array_equal(self._buffer[self._guard], CANARY)

    @staticmethod
    def _place(buffer: Array, x: Array) -> Array:
        strides = tuple(stride // x.itemsize * buffer.itemsize for stride in x.strides)
        return np.lib.stride_tricks.as_strided(buffer[GUARD:], x.shape, strides)


def _view(x: Any) -> Any:
    return x.view if isinstance(x, _Guarded) else x


def _tensor(x: Any) -> Any:
    if not isinstance(x, np.ndarray):
        return x
    shared = torch.from_numpy(x.view(np.int32) if x.dtype == np.uint32 else x)
    if DEVICE == "cpu":
        return shared
    return torch.empty_strided(
        shared.shape, shared.stride(), dtype=shared.dtype, device=DEVICE
    ).copy_(shared)


def _bits_as(x: Array, *, like: Array) -> Array:
    return x.view(np.uint32) if like.dtype == np.uint32 else x
