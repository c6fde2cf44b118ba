"""Many small cases as one test that names each case in which it fails.

A rule of style over six hundred files is checked in a second; to collect, distribute and report it
as six hundred tests takes several.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def failures(
    check: Callable[[T], None], cases: Iterable[T], *, named: Callable[[T], str] = str
) -> list[str]:
    """The cases in which an assertion of `check` fails, each with what it says."""
    found = []
    for case in cases:
        try:
            check(case)
        except AssertionError as error:
            found.append(f"{named(case)}: {error}")
    return found
