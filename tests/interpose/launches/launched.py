"""What the litmus kernels of a launch share: arguments, and the launch of each kernel of a file.

Of a kernel `x_right` nothing may be found, of `x_wrong` something has to be.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

N, B = 64, 16
WIDE = 1024  # elements of a block that all four warps of a program share
_LAUNCHES: list[tuple[Any, Callable[[], tuple[Any, ...]], int, int]] = []


def launched(*make: Callable[[], Any], block: int = B, programs: int = 0) -> Callable[[Any], Any]:
    """A kernel that is launched on these arguments. block: elements of a block; programs: 0 as many
    as the elements need, with wide blocks one
    """
    count = programs or (N // B if block == B else 1)

    def note(kernel: Any) -> Any:
        _LAUNCHES.append((kernel, lambda: tuple(one() for one in make), block, count))
        return kernel

    return note


def numbers() -> torch.Tensor:
    return torch.arange(N, device="cuda", dtype=torch.float32)


def zeros() -> torch.Tensor:
    return torch.zeros(N, device="cuda")


def counter() -> torch.Tensor:
    return torch.zeros(1, device="cuda", dtype=torch.int32)


def wide() -> torch.Tensor:
    return torch.arange(4 * WIDE, device="cuda", dtype=torch.float32)


def launch_all() -> None:
    for kernel, make, block, programs in _LAUNCHES:
        kernel[(programs,)](*make(), N=N, B=block)
    torch.cuda.synchronize()
