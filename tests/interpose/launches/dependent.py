"""Pairs and chains of launches that begin before the one in front of them has ended.

Of a function `x_right` nothing may be found, of `x_wrong` something has to be.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from launched import N, numbers, zeros
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def produce(x, y, EARLY: tl.constexpr, WAITS: tl.constexpr, N: tl.constexpr):
    """EARLY: triggers before it stores"""
    at = tl.arange(0, N)
    if WAITS:
        gdc_wait()
    if EARLY:
        gdc_launch_dependents()
    tl.store(y + at, tl.load(x + at) * 2)
    if not EARLY:
        gdc_launch_dependents()


@triton.jit
def consume(x, y, WAITS: tl.constexpr, FIRST: tl.constexpr, N: tl.constexpr):
    """FIRST: waits before it loads"""
    at = tl.arange(0, N)
    if WAITS and FIRST:
        gdc_wait()
    found = tl.load(x + at)
    if WAITS and not FIRST:
        gdc_wait()
    tl.store(y + at, found + 1)


@triton.jit
def plain(x, y, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(y + at, tl.load(x + at) * 2)


def trigger_right(x, y, z) -> None:
    """It triggers before it stores, and the next launch waits before it loads."""
    produce[(1,)](x, y, EARLY=True, WAITS=False, N=N)
    consume[(1,)](y, z, WAITS=True, FIRST=True, N=N, launch_pdl=True)


def trigger_wrong(x, y, z) -> None:
    """It triggers before it stores, and the next launch does not wait."""
    produce[(1,)](x, y, EARLY=True, WAITS=False, N=N)
    consume[(1,)](y, z, WAITS=False, FIRST=True, N=N, launch_pdl=True)


def late_right(x, y, z) -> None:
    """Nothing begins early without the attribute."""
    produce[(1,)](x, y, EARLY=True, WAITS=False, N=N)
    consume[(1,)](y, z, WAITS=False, FIRST=True, N=N)


def late_wrong(x, y, z) -> None:
    """It waits, behind the load."""
    produce[(1,)](x, y, EARLY=True, WAITS=False, N=N)
    consume[(1,)](y, z, WAITS=True, FIRST=False, N=N, launch_pdl=True)


def between_right(x, y, z, other) -> None:
    """All wait: the end of each says that all before it have ended."""
    produce[(1,)](x, y, EARLY=True, WAITS=False, N=N)
    produce[(1,)](x, other, EARLY=True, WAITS=True, N=N, launch_pdl=True)
    consume[(1,)](y, z, WAITS=True, FIRST=True, N=N, launch_pdl=True)


def between_wrong(x, y, z, other) -> None:
    """The launch between does not wait, so that its end says nothing of the first."""
    produce[(1,)](x, y, EARLY=True, WAITS=False, N=N)
    produce[(1,)](x, other, EARLY=True, WAITS=False, N=N, launch_pdl=True)
    consume[(1,)](y, z, WAITS=True, FIRST=True, N=N, launch_pdl=True)


def end_right(x, y, z, other) -> None:
    """A launch that does not begin early comes behind all before it."""
    produce[(1,)](x, y, EARLY=True, WAITS=False, N=N)
    produce[(1,)](x, other, EARLY=True, WAITS=False, N=N, launch_pdl=True)
    consume[(1,)](y, z, WAITS=False, FIRST=True, N=N)


def end_wrong(x, y, z, other) -> None:
    """Two launches later, and none of them has waited."""
    produce[(1,)](x, y, EARLY=True, WAITS=False, N=N)
    produce[(1,)](x, other, EARLY=True, WAITS=False, N=N, launch_pdl=True)
    consume[(1,)](y, z, WAITS=False, FIRST=True, N=N, launch_pdl=True)


def reuse_right(x, y, z) -> None:
    """It waits before it overwrites what the launch before it reads."""
    produce[(1,)](x, y, EARLY=True, WAITS=False, N=N)
    consume[(1,)](z, x, WAITS=True, FIRST=True, N=N, launch_pdl=True)


def reuse_wrong(x, y, z) -> None:
    """What it overwrites may not have been read yet."""
    produce[(1,)](x, y, EARLY=True, WAITS=False, N=N)
    consume[(1,)](z, x, WAITS=False, FIRST=True, N=N, launch_pdl=True)


def apart_right(x, y, z) -> None:
    """An operation stands between the two, and the launch behind it begins when that has ended."""
    produce[(1,)](x, y, EARLY=True, WAITS=False, N=N)
    y.add_(1)
    consume[(1,)](y, z, WAITS=False, FIRST=True, N=N, launch_pdl=True)


def apart_wrong(x, y, z) -> None:
    """What stands between is on another stream."""
    side = torch.cuda.Stream()
    produce[(1,)](x, y, EARLY=True, WAITS=False, N=N)
    with torch.cuda.stream(side):
        torch.ones(4, device="cuda")
    consume[(1,)](y, z, WAITS=False, FIRST=True, N=N, launch_pdl=True)


def exit_right(x, y, z) -> None:
    """A launch that does not trigger lets the next one begin when its programs have ended."""
    plain[(1,)](x, y, N=N)
    consume[(1,)](y, z, WAITS=False, FIRST=True, N=N, launch_pdl=True)


def exit_wrong(x, y, z) -> None:
    """It triggers at once, and ends later."""
    produce[(1,)](x, y, EARLY=True, WAITS=True, N=N)
    consume[(1,)](y, z, WAITS=False, FIRST=True, N=N, launch_pdl=True)


CHAINS = (
    trigger_right, trigger_wrong, late_right, late_wrong, between_right, between_wrong, end_right,
    end_wrong, reuse_right, reuse_wrong, apart_right, apart_wrong, exit_right, exit_wrong,
)  # fmt: skip


def main() -> None:
    for one in CHAINS:
        count = one.__code__.co_argcount - 1
        x, others = numbers(), [zeros() for _ in range(count)]
        torch.cuda.synchronize()
        one(x, *others)
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
