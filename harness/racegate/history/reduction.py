"""Delta debugging (Zeller and Hildebrandt 2002): what of a failure can be left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def fewest(
    items: tuple[T, ...], fails: Callable[[tuple[T, ...]], bool | None]
) -> tuple[tuple[T, ...], bool]:
    """As few of the items as still fail, in their order, and whether none of these can be left out.

    fails: whether so few still do; None if nothing more may be tried
    """
    size = max(1, len(items) // 2)
    while items:
        start, before = 0, len(items)
        while start < len(items):
            fewer = items[:start] + items[start + size :]
            is_failing = fails(fewer)
            if is_failing is None:
                return items, False
            if is_failing:
                items = fewer
            else:
                start += size
        if size == 1 and len(items) == before:
            break
        size = max(1, size // 2)
    return items, True
