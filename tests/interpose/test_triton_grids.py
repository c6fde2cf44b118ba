"""Grids that are functions, as Triton asks them: with all arguments by name, before the launch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from racegate.interpose.kernels.triton_kernels import settle_grid


def kernel(source: Any, table: Any, count: int, BLOCK: int = 4) -> None:
    """Only its parameters are looked at."""


def test_a_grid_function_may_exchange_an_argument() -> None:
    def grid(named: dict[str, Any]) -> tuple[int]:
        named["table"] = ["longer"]
        return (-(-named["count"] // named["BLOCK"]),)

    executor = SimpleNamespace(fn=kernel, grid=grid)
    args, kwargs = settle_grid(executor, (["source"], []), {"count": 9, "num_warps": 8})
    assert args == (["source"], ["longer"])
    assert kwargs == {"count": 9, "BLOCK": 4, "num_warps": 8}
    assert executor.grid == (3,)


def test_a_grid_of_numbers_leaves_the_arguments_as_they_are() -> None:
    executor = SimpleNamespace(fn=kernel, grid=(2,))
    given = ((1, 2, 3), {"num_warps": 8})
    assert settle_grid(executor, *given) == given
    assert executor.grid == (2,)
