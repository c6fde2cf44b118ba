"""Small Triton kernels that leave the memory which they were given, and twins that stay in it.

The names say which: of a kernel `x_right` nothing may be found, of `x_wrong` something has to be.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from launched import launch_all, launched, numbers, zeros

SHORT = 60  # elements: their block in the allocator has room for 64


def short() -> torch.Tensor:
    return torch.arange(SHORT, device="cuda", dtype=torch.float32)


def second_half() -> torch.Tensor:
    return numbers()[32:]


def table() -> torch.Tensor:
    """Addresses of two tensors that live on."""
    return torch.tensor([one.data_ptr() for one in _KEPT], device="cuda")


def wrong_table() -> torch.Tensor:
    return table() * 0 + 8


_KEPT = [numbers(), numbers()]


@launched(short, zeros)
@triton.jit
def end_right(x, y, N: tl.constexpr, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at, tl.load(x + at, mask=at < 60, other=0))


@launched(short, zeros)
@triton.jit
def end_wrong(x, y, N: tl.constexpr, B: tl.constexpr):
    """Four elements behind the tensor, where the allocator's block still has room."""
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at, tl.load(x + at))


@launched(numbers, short)
@triton.jit
def store_right(x, y, N: tl.constexpr, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at, tl.load(x + at), mask=at < 60)


@launched(numbers, short)
@triton.jit
def store_wrong(x, y, N: tl.constexpr, B: tl.constexpr):
    """The mask is that of another tensor."""
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at, tl.load(x + at), mask=at < N)


@launched(second_half, zeros)
@triton.jit
def view_right(x, y, N: tl.constexpr, B: tl.constexpr):
    """In front of a view, and in its storage."""
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at, tl.load(x - 32 + at))


@launched(numbers, zeros)
@triton.jit
def view_wrong(x, y, N: tl.constexpr, B: tl.constexpr):
    """In front of the storage."""
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at, tl.load(x - 1 + at))


@launched(short, zeros)
@triton.jit
def rows_right(x, y, N: tl.constexpr, B: tl.constexpr):
    """Four rows of fifteen elements."""
    column, row = tl.arange(0, B), tl.program_id(0)
    tl.store(y + row * B + column, tl.load(x + row * 15 + column, mask=column < 15, other=0))


@launched(short, zeros)
@triton.jit
def rows_wrong(x, y, N: tl.constexpr, B: tl.constexpr):
    """The stride of the rows is that of the block."""
    column, row = tl.arange(0, B), tl.program_id(0)
    tl.store(y + row * B + column, tl.load(x + row * B + column, mask=column < 15, other=0))


@launched(table, zeros)
@triton.jit
def table_right(x, y, N: tl.constexpr, B: tl.constexpr):
    """What it reads was never an argument: its address was."""
    at = tl.program_id(0) * B + tl.arange(0, B)
    one = tl.load(x + tl.program_id(0) % 2).to(tl.pointer_type(tl.float32))
    tl.store(y + at, tl.load(one + at))


@launched(numbers, zeros)
@triton.jit
def table_wrong(x, y, N: tl.constexpr, B: tl.constexpr):
    """The next tensor is not far, and was not given."""
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at, tl.load(x + N * 64 + at))


@triton.jit
def nowhere_wrong(x, y, N: tl.constexpr, B: tl.constexpr):
    one = tl.load(x).to(tl.pointer_type(tl.float32))
    tl.store(y, tl.load(one))


@triton.jit
def nowhere_right(x, y, N: tl.constexpr, B: tl.constexpr):
    """It looks, and touches nothing."""
    one = tl.load(x).to(tl.pointer_type(tl.float32))
    tl.store(y, tl.load(one, mask=tl.load(x) > 8, other=0))


launch_all()
nowhere_right[(1,)](wrong_table(), zeros(), N=64, B=16)
try:
    nowhere_wrong[(1,)](wrong_table(), zeros(), N=64, B=16)
except RuntimeError as error:
    assert "illegal memory access" in str(error)
else:
    raise AssertionError("a GPU ends such a launch with an error")
