"""Data that something is done to: values replaced, repeated, left out or nested, and text that is
cut, doubled or sprinkled, as TOML or JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from racegate.explore.swarm import Pick, one_of


@dataclass(frozen=True, slots=True)
class Raw:
    """Text that takes the place of a value."""

    text: str


STRANGE = (
    "\x1b[31m", "\u202e", "\u200b", "\x9b2J", "[/foo]", "[bold]", "\n", "\r", "\0", "::error::",
    "<script>", "|", "`", ":warning:", "\ufeff", "é", "日本", "\U0001f600", "a" * 300, "*" * 300,
    "../" * 20, "/dev/zero", "",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    0, -1, 1, 2, 255, 2**31, 2**32, 2**63, 2**64, -(2**63), 10**40, 0.0, -0.5, 1e308, True, False,
    [], {}, [[]], [{}], {"a": 1}, "0:2", "A", "r0", "forced", "forced until forced",
    Raw("nan"), Raw("-inf"), Raw("1e999"), Raw("9" * 300), Raw("9" * 5000), Raw("0x" + "f" * 5000),
    Raw("[" * 100 + "]" * 100), Raw("[" * 3000 + "]" * 3000), Raw("{a=" * 500 + "1" + "}" * 500),
    Raw('{"a":' * 500 + "1" + "}" * 500), Raw("1979-05-27T07:32:00Z"), Raw("1979-13-99"),
    Raw('"\\ud800"'), Raw('"\\u0000"'), Raw("null"), Raw("'" * 3), Raw('"""'), Raw('""""'),
)  # fmt: skip
TOKENS = (
    b"[", b"]", b"{", b"}", b'"', b"'", b'"""', b"'''", b"\\", b"=", b".", b",", b"\n", b"\0", b"#",
    b"\x1b[2J", b"\xff", b"\xe2\x80\xae", b"[[", b"a.", b'"a".', b"not ", b"( ", b" or ", b"until ",
    b"*", b"@", b"9", b"-", b"0x", b"/dev/zero", b"\xed\xa0\x80", b"+02:00", b":", b"A.0",
)  # fmt: skip


def broken(data: Any, pick: Pick, write: Callable[[Any], str]) -> bytes:
    """Data with a few things wrong in it, written, with a few things wrong in the text."""
    for _ in range(pick(4)):
        data = _damaged(data, pick)
    text = data.text if isinstance(data, Raw) else write(data)
    content = text.encode("utf-8", "surrogatepass")
    for _ in range(max(0, pick(6) - 3)):
        content = _torn(content, pick)
    return content


def _damaged(data: Any, pick: Pick) -> Any:
    """Something in the data exchanged: here, or further in."""
    if isinstance(data, dict) and data and pick(5):
        key = one_of(pick, tuple(data))
        return {**data, key: _damaged(data[key], pick)}
    if isinstance(data, list) and data and pick(5):
        place = pick(min(len(data), 20))
        return [*data[:place], _damaged(data[place], pick), *data[place + 1 :]]
    if isinstance(data, dict) and pick(3):
        without = dict(data)
        if pick(2) and without:
            del without[one_of(pick, tuple(without))]
        else:
            without[one_of(pick, STRANGE)] = one_of(pick, VALUES)
        return without
    if isinstance(data, list) and pick(3):
        return data * one_of(pick, (0, 2, 3, 20, 300 // max(1, len(data))))
    if isinstance(data, str) and pick(2):
        place = pick(len(data) + 1)
        return data[:place] + one_of(pick, STRANGE) * one_of(pick, (1, 1, 40)) + data[place:]
    return one_of(pick, (*VALUES, *STRANGE))


def _torn(content: bytes, pick: Pick) -> bytes:
    """Something in the text: cut, doubled, put in or repeated."""
    first = pick(len(content) + 1)
    last = min(len(content), first + 1 + pick(30))
    match pick(6):
        case 0:
            return content[:first]
        case 1:
            return content[:first] + content[last:]
        case 2:
            return content[:last] + content[first:]
        case 3:
            count = one_of(pick, (2, 20, 300, 20_000))
            return content[:last] + content[first:last] * count + content[last:]
        case _:
            token = one_of(pick, TOKENS) * one_of(pick, (1, 1, 1, 5, 70, 5_000))
            return content[:first] + token + content[first:]


def write_json(data: Any) -> str:
    """JSON, with what is Raw as it is."""
    if isinstance(data, Raw):
        return data.text
    if isinstance(data, dict):
        return "{" + ",".join(f"{_text(key)}:{write_json(data[key])}" for key in data) + "}"
    if isinstance(data, list):
        return "[" + ",".join(map(write_json, data)) + "]"
    return _text(data) if isinstance(data, str) else json.dumps(data)


def _text(text: str) -> str:
    """A string of JSON, which is one of TOML too."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _toml_value(data: Any) -> str:
    if isinstance(data, dict):
        pairs = (f"{_text(key)} = {_toml_value(data[key])}" for key in data)
        return "{" + ", ".join(pairs) + "}"
    if isinstance(data, list):
        return "[" + ", ".join(map(_toml_value, data)) + "]"
    return write_json(data)


def write_toml(data: Any) -> str:
    """TOML, tables inline."""
    if not isinstance(data, dict):
        return f"a = {_toml_value(data)}"
    return "\n".join(f"{_text(key)} = {_toml_value(data[key])}" for key in data) + "\n"
