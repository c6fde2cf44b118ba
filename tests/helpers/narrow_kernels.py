"""Triton kernels over bfloat16 and float8, and what each is compared by: run as a script, compiled
or under Triton's interpreter, it writes every result as bytes.

    TRITON_INTERPRET=1 python tests/helpers/narrow_kernels.py OUT.npz

Without that variable it needs a GPU. Inputs are drawn from a seed, special values among them.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any, NoReturn

import numpy as np
import torch
import triton
import triton.language as tl

SIZE = 256
SIDE = 32
DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"
SPECIAL = (
    0.0, -0.0, 1.0, -1.0, 447.0, 449.0, 464.0, 465.0, 500.0, 57344.0, 61440.0, 70000.0, 1e9, -1e9,
    3.0e38, float("inf"), -float("inf"), float("nan"), 2.0**-9, 2.0**-10, 1.5 * 2.0**-9, 2.0**-16,
    2.0**-17, 1.00390625, 1.01171875, 3.1415927, 1e-40, 2.0**-126, 2.0**-133,
)  # fmt: skip


@triton.jit
def elementwise(a, b, c, out, size: tl.constexpr) -> None:  # type: ignore[no-untyped-def]
    at = tl.arange(0, size)
    x, y = tl.load(a + at), tl.load(b + at)
    z = tl.load(c + at, mask=at < size - 5, other=2.0)
    tl.store(out + at, x + y)
    tl.store(out + size + at, x - y)
    tl.store(out + 2 * size + at, x * y)
    tl.store(out + 3 * size + at, tl.fma(x, y, z))
    tl.store(out + 4 * size + at, tl.where(x < y, x, y))
    tl.store(out + 5 * size + at, tl.maximum(x, z))
    tl.store(out + 6 * size + at, tl.minimum(y, z))
    tl.store(out + 7 * size + at, tl.where(x == 0.0, x, -x))  # -0.0 is 0.0 up to Triton 3.6
    tl.store(out + 8 * size + at, tl.abs(y))
    tl.store(out + 9 * size + at, z)
    tl.store(out + 10 * size + at, (x >= y).to(tl.bfloat16))
    tl.store(out + 11 * size + at, (x / y).to(tl.bfloat16))


@triton.jit
def converted(source, out, size: tl.constexpr) -> None:  # type: ignore[no-untyped-def]
    at = tl.arange(0, size)
    tl.store(out + at, tl.load(source + at).to(out.dtype.element_ty))


@triton.jit
def multiplied(a, b, out, side: tl.constexpr) -> None:  # type: ignore[no-untyped-def]
    rows, columns = tl.arange(0, side)[:, None], tl.arange(0, side)[None, :]
    at = rows * side + columns
    tl.store(out + at, tl.dot(tl.load(a + at), tl.load(b + at)))


@triton.jit
def added_by_one_program(place, values, size: tl.constexpr) -> None:  # type: ignore[no-untyped-def]
    """One addition after the other, so that their order is the same everywhere."""
    for at in range(size):
        tl.atomic_add(place, tl.load(values + at))


def drawn(seed: int, size: int) -> torch.Tensor:  # [size] float32
    """Ordinary numbers of all sizes, and special ones in the beginning."""
    random = np.random.default_rng(seed)
    values = random.standard_normal(size) * 2.0 ** random.integers(-12, 12, size)
    values[: len(SPECIAL)] = random.permutation(SPECIAL)
    return torch.from_numpy(values.astype(np.float32))


def bits(tensor: torch.Tensor) -> Any:
    """The bytes of a tensor; every NaN alike."""
    same = torch.where(tensor.isnan(), torch.full_like(tensor, float("nan")), tensor)
    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[tensor.element_size()]
    return same.view(whole).cpu().numpy()


def results() -> dict[str, Any]:
    """Name to bits."""
    found: dict[str, Any] = {}
    a, b, c = (drawn(seed, SIZE).to(torch.bfloat16).to(DEVICE) for seed in range(3))
    out = torch.zeros(12 * SIZE, dtype=torch.bfloat16, device=DEVICE)
    elementwise[(1,)](a, b, c, out, SIZE)
    found["elementwise"] = bits(out).reshape(12, SIZE)
    single = drawn(3, SIZE).to(DEVICE)
    for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        narrow = torch.zeros(SIZE, dtype=getattr(torch, name), device=DEVICE)
        converted[(1,)](single, narrow, SIZE)
        found[f"float32 to {name}"] = bits(narrow.to(torch.float32))
        for wide in (torch.float32, torch.float16):
            back = torch.zeros(SIZE, dtype=wide, device=DEVICE)
            converted[(1,)](narrow, back, SIZE)
            found[f"{name} to {wide}"] = bits(back)
    whole = torch.arange(-SIZE // 2, SIZE // 2, dtype=torch.int32, device=DEVICE) * 65_793
    narrow = torch.zeros(SIZE, dtype=torch.bfloat16, device=DEVICE)
    converted[(1,)](whole, narrow, SIZE)
    found["int32 to bfloat16"] = bits(narrow)
    place = torch.zeros(1, dtype=torch.bfloat16, device=DEVICE)
    added_by_one_program[(1,)](place, (single[64:128] % 1.0).to(torch.bfloat16), 64)
    found["atomic additions"] = bits(place)
    return found | products()


def products() -> dict[str, Any]:
    """Of small whole numbers, so that every order of summing is exact."""
    random = np.random.default_rng(7)
    found = {}
    for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        left, right = (
            torch.from_numpy(random.integers(-4, 5, (SIDE, SIDE)).astype(np.float32))
            .to(getattr(torch, name))
            .to(DEVICE)
            for _ in range(2)
        )
        out = torch.zeros(SIDE, SIDE, device=DEVICE)
        multiplied[(1,)](left, right, out, SIDE)
        found[f"product of {name}"] = bits(out)
    return found


def main() -> None:
    """Writes the results to the file that is named, with the versions that they are of."""
    if DEVICE == "cpu":
        from racegate.interpose.kernels.interpreted.language import prefer_numbers
        from racegate.interpose.kernels.narrow_floats import compute_narrow_floats

        def refuse(what: str) -> NoReturn:
            raise SystemExit(f"refused: {what}")

        if "--plain" not in sys.argv:
            interpreter = importlib.import_module("triton.runtime.interpreter")
            compute_narrow_floats(interpreter, refuse)
            prefer_numbers(interpreter.InterpreterBuilder)
    with np.errstate(all="ignore"):
        found = results()
    facts = f"torch {torch.__version__}, triton {triton.__version__}, {DEVICE}"
    if DEVICE == "cuda":
        facts += f", {torch.cuda.get_device_name()}"
    np.savez_compressed(sys.argv[1], facts=np.array(facts), **found)


if __name__ == "__main__":
    main()
