"""What is wrong with the shape of a TOML file, as its writer needs it: the keys that are near one
that there is not, and the line.
"""

from __future__ import annotations

import re
from collections import Counter

import msgspec
from msgspec import inspect

from racegate.scenario.untrusted.near import near_it

_UNKNOWN = re.compile(r"unknown field `(.*)`$")
_STEP = re.compile(r"\.([\w-]+)|\[(?:\d+|\.\.\.)\]")
_HEADER = re.compile(r"\s*(\[\[?)([\w.-]+)\]")
_KEY = re.compile(r"\s*([\w-]+)\s*=")


def refused(error: msgspec.ValidationError, kind: type) -> tuple[str, str]:
    """The place in the file, `$` being all of it, and the reason. kind: what it was read as"""
    reason, _, at = str(error).partition(" - at `")
    path = at.rstrip("`") or "$"
    if found := _UNKNOWN.search(reason):
        reason += near_it(found[1], _keys_at(kind, path))
    return path, reason


def _keys_at(kind: type, path: str) -> list[str]:
    """The keys that a table at this place may have."""
    here = [inspect.type_info(kind)]
    for step in _STEP.finditer(path):
        here = [found for one in here for found in _below(one, step[1])]
    return [field.encode_name for one in map(_plain, here) for field in one.fields]


def _below(one: inspect.Type, key: str | None) -> list[inspect.Type]:
    """What lies below a key, or, without one, in an array."""
    if isinstance(one, inspect.UnionType):
        return [found for each in one.types for found in _below(each, key)]
    if key is None:
        item = getattr(one, "item_type", None)
        return [] if item is None else [item]
    return [field.type for field in _plain(one).fields if field.encode_name == key]


class _Nothing:
    """What is no table: it has no keys."""

    fields: tuple[inspect.Field, ...] = ()


def _plain(one: inspect.Type) -> inspect.StructType | _Nothing:
    return one if isinstance(one, inspect.StructType) else _Nothing()


def line_of(text: str, path: str, reason: str = "") -> int | None:
    """Where a place in a file begins, None if that is the whole file. reason: names the key, if it
    is one that is not known
    """
    unknown = _UNKNOWN.search(reason.partition(";")[0])
    wanted = f"{path}.{unknown[1]}" if unknown else path
    lines = _lines_of(text)
    while wanted not in lines:
        if wanted == "$" or not (shorter := re.sub(r"(\.[^.\[]*|\[\d*\])$", "", wanted)):
            return None
        wanted = shorter if shorter != wanted else "$"
    return lines[wanted]


def _lines_of(text: str) -> dict[str, int]:
    """The lines of tables and of keys that begin a line, by their place."""
    found: dict[str, int] = {}
    counts: Counter[str] = Counter()
    table = "$"
    for number, line in enumerate(text.split("\n"), start=1):
        if header := _HEADER.match(line):
            table = _table(header[2].split("."), counts, is_array=header[1] == "[[")
            found.setdefault(table, number)
        elif key := _KEY.match(line):
            found.setdefault(f"{table}.{key[1]}", number)
    return found


def _table(parts: list[str], counts: Counter[str], *, is_array: bool) -> str:
    """The place of a table: of arrays above it, in their last element."""
    place = "$"
    for number, part in enumerate(parts, start=1):
        place += f".{part}"
        if is_array and number == len(parts):
            counts[place] += 1
        if counts[place]:
            place += f"[{counts[place] - 1}]"
    return place
