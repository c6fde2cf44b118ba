"""Launches that begin early, on a GPU: how often what a launch reads is what the launches before it
were to leave, of each right chain and each wrong one.

    python reports/kernels/early_on_gpu.py FILE

The first launch triggers, sleeps and stores; what does not wait for it reads before that. Needs
compute capability 9.0 and Triton.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

N, RUNS = 256, 50


@triton.jit
def slow(x, y, WAITS: tl.constexpr, SLEEPS: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    if WAITS:
        gdc_wait()
    gdc_launch_dependents()
    for _ in range(SLEEPS):
        tl.inline_asm_elementwise(
            "nanosleep.u32 100000; mov.u32 $0, 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1
        )
    tl.store(y + at, tl.load(x + at) * 2)


@triton.jit
def consume(x, y, WAITS: tl.constexpr, FIRST: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    if WAITS and FIRST:
        gdc_wait()
    found = tl.load(x + at)
    if WAITS and not FIRST:
        gdc_wait()
    tl.store(y + at, found + 1)


def pair(x, y, z, other, *, waits: bool, first: bool = True, early: bool = True):
    slow[(1,)](x, y, WAITS=False, SLEEPS=20, N=N)
    consume[(1,)](y, z, WAITS=waits, FIRST=first, N=N, launch_pdl=early)
    return z, x * 2 + 1


def chain(x, y, z, other, *, waits: bool, early: bool = True, last: bool = True):
    slow[(1,)](x, y, WAITS=False, SLEEPS=20, N=N)
    slow[(1,)](x, other, WAITS=waits, SLEEPS=0, N=N, launch_pdl=True)
    consume[(1,)](y, z, WAITS=last, FIRST=True, N=N, launch_pdl=early)
    return z, x * 2 + 1


def reuse(x, y, z, other, *, waits: bool):
    expected = x * 2
    torch.cuda.synchronize()
    slow[(1,)](x, y, WAITS=False, SLEEPS=20, N=N)
    consume[(1,)](z, x, WAITS=waits, FIRST=True, N=N, launch_pdl=True)
    return y, expected


CASES: dict[str, Callable[..., tuple[torch.Tensor, torch.Tensor]]] = {
    "trigger_right": lambda *to: pair(*to, waits=True),
    "trigger_wrong": lambda *to: pair(*to, waits=False),
    "late_right": lambda *to: pair(*to, waits=False, early=False),
    "late_wrong": lambda *to: pair(*to, waits=True, first=False),
    "between_right": lambda *to: chain(*to, waits=True),
    "between_wrong": lambda *to: chain(*to, waits=False),
    "end_right": lambda *to: chain(*to, waits=False, early=False, last=False),
    "end_wrong": lambda *to: chain(*to, waits=False, last=False),
    "reuse_right": lambda *to: reuse(*to, waits=True),
    "reuse_wrong": lambda *to: reuse(*to, waits=False),
}


def wrong_runs(case: Callable[..., tuple[torch.Tensor, torch.Tensor]]) -> int:
    """Of RUNS, in how many the result is not what the launches give one after the other."""
    count = 0
    for _ in range(RUNS):
        x = torch.arange(N, device="cuda", dtype=torch.float32)
        y, z, other = (torch.zeros(N, device="cuda") for _ in range(3))
        torch.cuda.synchronize()
        found, expected = case(x, y, z, other)
        torch.cuda.synchronize()
        count += not torch.equal(found, expected)
    return count


def main() -> None:
    wrong = {}
    for name, case in CASES.items():
        wrong_runs(case)  # compiles
        wrong[name] = wrong_runs(case)
    result = {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "runs": RUNS,
        "wrong": wrong,
    }
    Path(sys.argv[1]).write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
