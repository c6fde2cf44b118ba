"""Memory in huge pages: which stretches can be, and that it holds what it held."""

from __future__ import annotations

import ctypes
import mmap

from racegate.interpose.program.huge_pages import HUGE, gather, stretches

MAPS = """\
555500000000-555500001000 r-xp 00000000 08:01 123 /usr/bin/python3
7f0000100000-7f0000900000 rw-p 00000000 00:00 0
7f0001000000-7f0001200000 rw-p 00000000 00:00 0 [heap]
7f0002000000-7f0002400000 rw-s 00000000 00:01 77 /memfd:shared (deleted)
7f0003000000-7f0003400000 rw-p 00000000 08:01 99 /usr/lib/libtorch.so
7f0004000000-7f0004400000 r--p 00000000 00:00 0
"""
EVERYTHING = 1 << 64


def test_private_memory_without_a_file_has_stretches() -> None:
    found = [hex(low) for low in stretches(MAPS)]
    assert found == ["0x7f0000200000", "0x7f0000400000", "0x7f0000600000", "0x7f0001000000"]


def test_gathered_memory_holds_what_it_held() -> None:
    size = 4 * HUGE
    with mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory[:] = bytes(range(256)) * (size // 256)
        low = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        gathered = gather(but=((0, low), (low + size, EVERYTHING)))
        assert gathered in range(0, size + 1, HUGE), (
            "as many as the kernel has, of these bytes alone"
        )
        assert memory[:] == bytes(range(256)) * (size // 256)


def test_what_is_to_stay_stays() -> None:
    assert gather(but=((0, EVERYTHING),)) == 0
