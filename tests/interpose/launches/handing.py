"""Small Triton kernels whose programs hand over to each other by atomic operations, or believe so.

The names say which: of a kernel `x_right` nothing may be found, of `x_wrong` something has to be.
"""

from __future__ import annotations

import triton
import triton.language as tl
from launched import WIDE, counter, launch_all, launched, numbers, wide, zeros


@launched(zeros, counter)
@triton.jit
def lock_right(y, lock, N: tl.constexpr, B: tl.constexpr):
    while tl.atomic_cas(lock, 0, 1, sem="acquire") != 0:
        pass
    tl.store(y, tl.load(y) + 1)
    tl.atomic_xchg(lock, 0, sem="release")


@launched(zeros, counter)
@triton.jit
def lock_wrong(y, lock, N: tl.constexpr, B: tl.constexpr):
    """The lock is given back before what it protects is written."""
    while tl.atomic_cas(lock, 0, 1, sem="acquire") != 0:
        pass
    old = tl.load(y)
    tl.atomic_xchg(lock, 0, sem="release")
    tl.store(y, old + 1)


@launched(zeros, counter)
@triton.jit
def order_right(y, lock, N: tl.constexpr, B: tl.constexpr):
    """The default of an atomic operation both acquires and releases."""
    while tl.atomic_cas(lock, 0, 1) != 0:
        pass
    tl.store(y, tl.load(y) + 1)
    tl.atomic_xchg(lock, 0)


@launched(zeros, counter)
@triton.jit
def order_wrong(y, lock, N: tl.constexpr, B: tl.constexpr):
    """A relaxed operation gives the lock back, and hands nothing over."""
    while tl.atomic_cas(lock, 0, 1) != 0:
        pass
    tl.store(y, tl.load(y) + 1)
    tl.atomic_xchg(lock, 0, sem="relaxed")


@launched(numbers, zeros, counter)
@triton.jit
def acquire_right(x, y, count, N: tl.constexpr, B: tl.constexpr):
    """Who counts last reads what all wrote."""
    me = tl.program_id(0)
    tl.store(y + me, tl.load(x + me))
    if tl.atomic_add(count, 1, sem="acq_rel") == N // B - 1:
        tl.store(x, tl.load(y) + tl.load(y + 1) + tl.load(y + 2) + tl.load(y + 3))


@launched(numbers, zeros, counter)
@triton.jit
def acquire_wrong(x, y, count, N: tl.constexpr, B: tl.constexpr):
    """Who counts last releases, and acquires nothing."""
    me = tl.program_id(0)
    tl.store(y + me, tl.load(x + me))
    if tl.atomic_add(count, 1, sem="release") == N // B - 1:
        tl.store(x, tl.load(y) + tl.load(y + 1) + tl.load(y + 2) + tl.load(y + 3))


@launched(numbers, zeros, counter)
@triton.jit
def asked_right(x, y, count, N: tl.constexpr, B: tl.constexpr):
    """Whoever finds that the first program was there reads what it wrote."""
    if tl.program_id(0) == 0:
        tl.store(y, tl.load(x))
        tl.atomic_add(count, 1)
    elif tl.atomic_add(count, 0) == 1:
        tl.store(y + tl.program_id(0), tl.load(y))


@launched(numbers, zeros, counter)
@triton.jit
def asked_wrong(x, y, count, N: tl.constexpr, B: tl.constexpr):
    """Nobody looks at the answer: it is in order only if the first program comes first."""
    if tl.program_id(0) == 0:
        tl.store(y, tl.load(x))
        tl.atomic_add(count, 1)
    else:
        tl.atomic_add(count, 0)
        tl.store(y + tl.program_id(0), tl.load(y))


@launched(numbers, zeros, counter)
@triton.jit
def chain_right(x, y, count, N: tl.constexpr, B: tl.constexpr):
    """Each waits for the one before it, and goes on from its sum."""
    me = tl.program_id(0)
    while tl.atomic_add(count, 0, sem="acquire") < me:
        pass
    before = tl.load(y + me - 1, mask=me > 0, other=0.0)
    tl.store(y + me, before + tl.load(x + me))
    tl.atomic_add(count, 1, sem="release")


@launched(numbers, zeros, counter)
@triton.jit
def chain_wrong(x, y, count, N: tl.constexpr, B: tl.constexpr):
    """Each says that it is done before it has written."""
    me = tl.program_id(0)
    while tl.atomic_add(count, 0, sem="acquire") < me:
        pass
    before = tl.load(y + me - 1, mask=me > 0, other=0.0)
    tl.atomic_add(count, 1, sem="release")
    tl.store(y + me, before + tl.load(x + me))


@launched(numbers, counter, counter)
@triton.jit
def scope_right(x, count, other, N: tl.constexpr, B: tl.constexpr):
    tl.atomic_add(count, 1, scope="gpu")


@launched(numbers, counter, counter)
@triton.jit
def scope_wrong(x, count, other, N: tl.constexpr, B: tl.constexpr):
    """Atomic for the threads of one program only."""
    tl.atomic_add(count, 1, scope="cta")


@launched(wide, wide, counter, block=WIDE, programs=4)
@triton.jit
def threads_right(x, y, count, N: tl.constexpr, B: tl.constexpr):
    """All threads have stored before one of them counts."""
    lane = tl.arange(0, B)
    tl.store(y + tl.program_id(0) * B + lane, tl.load(x + lane) * 2)
    tl.debug_barrier()
    if tl.atomic_add(count, 1) == 3:
        tl.store(x + lane, tl.load(y + lane) + tl.load(y + B + lane))


@launched(wide, wide, counter, block=WIDE, programs=4)
@triton.jit
def threads_wrong(x, y, count, N: tl.constexpr, B: tl.constexpr):
    """One thread counts, and others may not have stored yet."""
    lane = tl.arange(0, B)
    tl.store(y + tl.program_id(0) * B + lane, tl.load(x + lane) * 2)
    if tl.atomic_add(count, 1) == 3:
        tl.store(x + lane, tl.load(y + lane) + tl.load(y + B + lane))


if __name__ == "__main__":
    launch_all()
