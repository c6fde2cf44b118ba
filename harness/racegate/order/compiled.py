"""The order of a program's events in C: compiled on first use, kept, and loaded once.

Knows clocks and byte ranges; nothing of torch, of CUDA or of how anything is observed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import cast

from racegate.order.interface import Order, Ranges
from racegate.order.native.compiler import compiled

NATIVE = Path(__file__).parent / "native"
LIBRARY = "libracegate_order.so"
SOURCES = tuple(NATIVE / name for name in ("order.c", "lanes.c", "ranges.c"))


def compiled_order() -> Order:
    """Clocks without lanes and a shadow of no memory. Raises BadInput if it cannot be compiled."""
    return Order(*_library().racegate_order())


def union(pairs: list[tuple[int, int]]) -> Ranges:
    """The union of any ranges: sorted, overlapping and touching ones joined, empty ones dropped."""
    return _union()(pairs)


def build_order() -> Path:
    """Path of the library, compiled now if it never was. Raises BadInput."""
    return compiled(LIBRARY, SOURCES, read=(*SOURCES, *NATIVE.glob("*.h")))


@cache
def _union() -> Callable[[list[tuple[int, int]]], Ranges]:
    return cast("Callable[[list[tuple[int, int]]], Ranges]", _library().racegate_union())


@cache
def _library() -> ctypes.PyDLL:
    library = ctypes.PyDLL(str(build_order()))
    library.racegate_order.restype = ctypes.py_object
    library.racegate_union.restype = ctypes.py_object
    return library
