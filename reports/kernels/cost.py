"""The CPU time of an interpreted launch of 1,024 programs: the best of eight, in turns.

racegate torch run --no-store reports/kernels/cost.py

plain: as Triton interprets it; footprint: the bytes of the launch are known; judged: its programs
are judged too.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl

from racegate.interpose.kernels.interpreted.noting import AccessWatch

PROGRAMS, B = 1024, 256


@triton.jit
def softmax(x, y, N: tl.constexpr, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    row = tl.load(x + at, mask=at < N)
    row = tl.exp(row - tl.max(row, axis=0))
    tl.store(y + at, row / tl.sum(row, axis=0), mask=at < N)


@triton.jit
def copy(x, y, N: tl.constexpr, B: tl.constexpr):
    """Nothing but what is recorded."""
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at, tl.load(x + at, mask=at < N), mask=at < N)


def footprint_only(begin: Callable[..., None]) -> Callable[..., None]:
    def begin_unjudged(watch: AccessWatch, noted: Any, **_: Any) -> None:
        begin(watch, noted, is_judged=False)

    return begin_unjudged


def plain(watch: AccessWatch, *_: Any, **__: Any) -> None:
    watch.end()


def launch_cpu_s(kernel: Any, x: torch.Tensor) -> float:
    y = torch.empty_like(x)
    start_s = time.process_time()
    kernel[(PROGRAMS,)](x, y, N=x.numel(), B=B)
    return time.process_time() - start_s


def main() -> None:
    judged = AccessWatch.begin
    kinds = {"plain": plain, "footprint": footprint_only(judged), "judged": judged}
    x = torch.randn(PROGRAMS * B, device="cuda")
    for kernel in (softmax, copy):
        best_s = dict.fromkeys(kinds, float("inf"))
        for _ in range(8):
            for kind, begin in kinds.items():
                AccessWatch.begin = begin  # type: ignore[method-assign, assignment]
                best_s[kind] = min(best_s[kind], launch_cpu_s(kernel, x))
        for kind, cpu_s in best_s.items():
            more = 100 * (cpu_s / best_s["plain"] - 1)
            print(f"{kernel.__name__} {kind}: {cpu_s:.3f} CPU s, {more:.0f} % more than plain")


if __name__ == "__main__":
    main()
