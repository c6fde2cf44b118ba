"""Small Triton kernels that load memory which nothing has written, and twins that may.

The names say which: of a kernel `x_right` nothing may be found, of `x_wrong` something has to be.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from launched import B, N, launch_all, launched, numbers, zeros

HALF = N // 2


def empty() -> torch.Tensor:
    return torch.empty(N, device="cuda")


def half_filled() -> torch.Tensor:
    out = torch.empty(N, device="cuda")
    out[:HALF] = 1
    return out


def handed_out_again() -> torch.Tensor:
    """The bytes were written, for another tensor that is gone."""
    torch.ones(N, device="cuda")
    return torch.empty(N, device="cuda")


def empty_places() -> torch.Tensor:
    return torch.empty(N, device="cuda", dtype=torch.int32)


def half_of_the_places() -> torch.Tensor:
    """The others happen to be zero."""
    torch.zeros(N, device="cuda", dtype=torch.int32)
    out = empty_places()
    torch.arange(HALF, N, out=out[:HALF])
    return out


def count_to_be() -> torch.Tensor:
    return torch.empty(1, device="cuda", dtype=torch.int32)


def address_to_be() -> torch.Tensor:
    """It happens to be zero."""
    torch.zeros(3, device="cuda", dtype=torch.int64)
    return torch.empty(3, device="cuda", dtype=torch.int64)


def filled_by_a_kernel() -> torch.Tensor:
    out = torch.empty(N, device="cuda")
    fill[(N // B,)](out, B=B)
    return out


@triton.jit
def fill(y, B: tl.constexpr):
    tl.store(y + tl.program_id(0) * B + tl.arange(0, B), tl.zeros((B,), tl.float32))


@launched(zeros, numbers)
@triton.jit
def sum_right(y, x, N: tl.constexpr, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at, tl.load(y + at) + tl.load(x + at))


@launched(empty, numbers)
@triton.jit
def sum_wrong(y, x, N: tl.constexpr, B: tl.constexpr):
    """The tensor that it adds to was never zero."""
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at, tl.load(y + at) + tl.load(x + at))


@launched(filled_by_a_kernel, numbers)
@triton.jit
def again_right(y, x, N: tl.constexpr, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at, tl.load(y + at) + tl.load(x + at))


@launched(handed_out_again, numbers)
@triton.jit
def again_wrong(y, x, N: tl.constexpr, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at, tl.load(y + at) + tl.load(x + at))


@launched(lambda: count_to_be().zero_(), numbers)
@triton.jit
def count_right(y, x, N: tl.constexpr, B: tl.constexpr):
    tl.atomic_add(y, 1)


@launched(count_to_be, numbers)
@triton.jit
def count_wrong(y, x, N: tl.constexpr, B: tl.constexpr):
    tl.atomic_add(y, 1)


@launched(count_to_be, zeros)
@triton.jit
def exchange_right(y, x, N: tl.constexpr, B: tl.constexpr):
    """What was there before is answered, and nobody looks at it."""
    tl.atomic_xchg(y, 1)


@launched(empty, numbers)
@triton.jit
def largest_wrong(y, x, N: tl.constexpr, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.atomic_max(y + at, tl.load(x + at))


@launched(empty, numbers)
@triton.jit
def largest_right(y, x, N: tl.constexpr, B: tl.constexpr):
    """It stores before it counts on."""
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at, tl.zeros((B,), tl.float32))
    tl.debug_barrier()
    tl.atomic_max(y + at, tl.load(x + at))


@launched(half_of_the_places, zeros)
@triton.jit
def scatter_right(x, y, N: tl.constexpr, B: tl.constexpr):
    """Places behind the half are loaded, and not used."""
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + tl.load(x + at), 1.0, mask=at < N // 2)


@launched(half_of_the_places, zeros)
@triton.jit
def scatter_wrong(x, y, N: tl.constexpr, B: tl.constexpr):
    """In its memory, wherever the places say."""
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + tl.load(x + at) % N, 1.0)


@launched(half_of_the_places, zeros)
@triton.jit
def choose_wrong(x, y, N: tl.constexpr, B: tl.constexpr):
    """The mask itself is what nobody has stored."""
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at, 1.0, mask=tl.load(x + at) != 1)


@launched(half_of_the_places, zeros)
@triton.jit
def choose_right(x, y, N: tl.constexpr, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at, 1.0, mask=(at < N // 2) & (tl.load(x + at) != 1))


@launched(half_of_the_places, empty)
@triton.jit
def choose_in_padding_right(x, y, N: tl.constexpr, B: tl.constexpr):
    """What the mask picks of the second half goes where nobody looks either."""
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at, 1.0, mask=tl.load(x + at) != 1)


@launched(half_of_the_places, empty)
@triton.jit
def scatter_into_padding_wrong(x, y, N: tl.constexpr, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + tl.load(x + at) % N, 1.0)


@launched(empty_places, zeros)
@triton.jit
def gather_right(x, y, N: tl.constexpr, B: tl.constexpr):
    """Wherever it looks, nothing comes of it."""
    at = tl.program_id(0) * B + tl.arange(0, B)
    found = tl.load(x + tl.load(x + at) % N)
    tl.store(y + at, tl.where(at < N, 1.0, found.to(tl.float32)))


@launched(address_to_be, zeros)
@triton.jit
def follow_wrong(x, y, N: tl.constexpr, B: tl.constexpr):
    """An address that nobody has stored; zero is looked for, and other ones are not."""
    one = tl.load(x)
    tl.store(y, tl.load(one.to(tl.pointer_type(tl.float32)), mask=one != 0, other=0))


@launched(half_filled, zeros)
@triton.jit
def masked_right(x, y, N: tl.constexpr, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at, tl.where(at < N // 2, tl.load(x + at), 0.0))


@launched(half_filled, empty)
@triton.jit
def padding_right(x, y, N: tl.constexpr, B: tl.constexpr):
    """Padding stays padding: nobody looks at the second half of either."""
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at, tl.load(x + at) * 2 + 1)


@launched(half_filled, numbers)
@triton.jit
def padding_in_place_right(x, y, N: tl.constexpr, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(x + at, tl.load(x + at) + tl.load(y + at))


@launched(empty, numbers)
@triton.jit
def some_right(y, x, N: tl.constexpr, B: tl.constexpr):
    """What is not to change is stored as it was."""
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at, tl.where(at % 2 == 0, tl.load(x + at), tl.load(y + at)))


@launched(empty, empty)
@triton.jit
def copy_right(x, y, N: tl.constexpr, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at, tl.load(x + at))


launch_all()
