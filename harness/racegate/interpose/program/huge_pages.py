"""Memory of this process in huge pages: a fork copies one entry for each, not five hundred."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from pathlib import Path

from racegate.order.ranges import Ranges

HUGE = 2 << 20
_COLLAPSE = 25  # madvise(2), of Linux 6.1 and later
# Private memory that no file is behind, and that can be written.
_MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) rw-p \S+ \S+ 0\s")


def gather(but: Ranges) -> int:
    """Puts what can be into huge pages; returns how many bytes. A kernel that has none, or gives
    none, changes nothing but the time of forks. Costs a second per gigabyte. but: what stays
    """
    libc = ctypes.CDLL(None)
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    found = list(stretches(Path("/proc/self/maps").read_text()))
    chosen = [low for low in found if not _overlap(low, low + HUGE, but)]
    gathered = [low for low in chosen if libc.madvise(low, HUGE, _COLLAPSE) == 0]
    return HUGE * len(gathered)


def _overlap(low: int, high: int, ranges: Ranges) -> bool:
    return any(low < end and first < high for first, end in ranges)


def stretches(maps: str) -> Iterator[int]:
    """Where huge pages may begin, in private memory with no file behind it.

    maps: what the kernel says of a process's memory
    """
    for low, high in _MAPPING.findall(maps):
        first, end = -(-int(low, 16) // HUGE) * HUGE, int(high, 16) // HUGE * HUGE
        yield from range(first, end, HUGE)
