"""The CPU time of an interpreted launch of 1,024 programs, the best of five.

racegate torch run --no-store reports/kernels/cost.py
racegate torch run --no-store reports/kernels/cost.py unjudged
"""

from __future__ import annotations

import sys
import time

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


def main() -> None:
    if sys.argv[1:] == ["unjudged"]:
        AccessWatch._note_touch = lambda *_: False  # type: ignore[method-assign]
    x = torch.randn(PROGRAMS * B, device="cuda")
    y, best_s = torch.empty_like(x), float("inf")
    for _ in range(6):
        start_s = time.process_time()
        softmax[(PROGRAMS,)](x, y, N=x.numel(), B=B)
        best_s = min(best_s, time.process_time() - start_s)
    print(f"{best_s:.3f} CPU s")


if __name__ == "__main__":
    main()
