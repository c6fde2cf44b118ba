"""The functions that a shared library exports, read from its dynamic symbol table (ELF, 64 bit)."""

from __future__ import annotations

import struct
from pathlib import Path

from racegate.interpose.errors import BadInput

_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_DYNAMIC_SYMBOLS = 11
_FUNCTION = 2


def exported_functions(library: Path) -> tuple[str, ...]:
    """Names of the functions defined in the library, sorted.

    Raises BadInput if the file is not a 64 bit little-endian ELF library.
    """
    data = library.read_bytes()
    if data[:6] != b"\x7fELF\x02\x01":
        raise BadInput(f"{library} is not a 64 bit ELF library")
    (table,) = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    sections = [_SECTION.unpack_from(data, table + i * size) for i in range(count)]
    names: set[str] = set()
    for section in sections:
        if section[1] == _DYNAMIC_SYMBOLS:
            names |= _functions(data, section, strings=sections[section[6]])
    return tuple(sorted(names))


def _functions(data: bytes, section: tuple[int, ...], strings: tuple[int, ...]) -> set[str]:
    start, size = section[4], section[5]
    names = set()
    for name, info, _, index, _, _ in _SYMBOL.iter_unpack(data[start : start + size]):
        if index and info & 15 == _FUNCTION:
            at = strings[4] + name
            names.add(data[at : data.index(b"\0", at)].decode())
    return names
