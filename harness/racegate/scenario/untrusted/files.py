"""Files that are written whole or not at all, places that are tried before hours of work, and JSON
with one record a line.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from racegate.scenario.untrusted.text import printable_json

# What fits here stands on one line.
JSON_WIDTH = 120


def write_whole(path: Path, content: bytes) -> None:
    """A file with this content, or what was there before: a kill or a full disk leaves no half of
    it. What is no regular file (a pipe, a device) is written as it is. Raises OSError.
    """
    if _is_special(path):
        path.write_bytes(content)
        return
    beside = _beside(path)
    try:
        beside.write_bytes(content)
        beside.replace(path.resolve())
    except OSError:
        with suppress(OSError):
            beside.unlink()
        raise


def write_json(path: Path, value: object) -> None:
    """Writes a value as `json_text` has it, whole or not at all. Raises OSError."""
    write_whole(path, json_text(value).encode())


def json_text(value: object) -> str:
    """One JSON document, one record a line, so that a difference of two of them shows records.

    On one line stands what fits in JSON_WIDTH columns, and a record of any length: an object or an
    array that holds no other one. Each element of what is longer begins a line of its own, indented
    by one for each level. Characters that a terminal would act on are escapes.

    Args:
        value: anything that msgspec encodes: structs, dataclasses, sets, paths and plain values.

    Returns:
        The text with a line end; decoding it gives the value's plain form.
    """
    try:
        plain = msgspec.json.decode(msgspec.json.encode(value))
    except UnicodeEncodeError:  # halves of characters, as in names of files that are no UTF-8
        plain = msgspec.to_builtins(value, str_keys=True)
    return printable_json("\n".join(_json_lines("", plain, 0)) + "\n")


def _json_lines(name: str, value: object, depth: int) -> Iterator[str]:
    """name: of a member of an object with its colon, else nothing"""
    # As it is printed: an escape has up to twelve times the width of what it stands for.
    line = printable_json(" " * depth + name + json.dumps(value, ensure_ascii=False))
    members = _members(value)
    is_record = not any(one and isinstance(one, dict | list) for _, one in members)
    if is_record or len(line) <= JSON_WIDTH:
        yield line
        return
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    yield " " * depth + name + opening
    for at, (inner, one) in enumerate(members, start=1):
        *above, last = _json_lines(inner, one, depth + 1)
        yield from above
        yield last if at == len(members) else f"{last},"
    yield " " * depth + closing


def _members(value: object) -> list[tuple[str, object]]:
    if isinstance(value, dict):
        return [(f"{json.dumps(name, ensure_ascii=False)}: ", one) for name, one in value.items()]
    return [("", one) for one in value] if isinstance(value, list) else []


def check_writable(path: Path) -> None:
    """Raises OSError if a file could not be written here now."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder")
    if _is_special(path):
        return
    beside = _beside(path)
    beside.write_bytes(b"")
    beside.unlink()


def _is_special(path: Path) -> bool:
    return path.exists() and not path.is_file()


def _beside(path: Path) -> Path:
    """In the same folder: only there a rename is whole. Behind a link: where it leads."""
    real = path.resolve()
    return real.with_name(f".{real.name[:100]}.{os.getpid()}")
