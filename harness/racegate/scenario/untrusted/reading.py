"""Reading what others wrote, within bounds that are checked before work is done.

A file is a file, not a pipe, a device or a folder, and of a size that is known before it is read.
Text of a shape that would make a decoder slow or stop it (nesting, endless keys, long numbers) is
refused before it is decoded.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from pathlib import Path
from typing import TextIO

import msgspec

# Of TOML and JSON.
DEPTH_MAX = 64
# Of one key, one number, one date.
WORD_LENGTH_MAX = 256
KEY_PARTS_MAX = 16

# Strings first, or what stands in them would count: up to where the decoder would end them, or give
# up. Then what a nesting or a key is made of.
_TOML = re.compile(
    r'''"""(?:[^\\"]++|\\.?|"(?!""))*+(?:"{3,5}|\Z)'''
    r"""|'''(?:[^']++|'(?!''))*+(?:'{3,5}|\Z)"""
    r"""|"(?:[^"\\\n]++|\\.)*+"?|'[^'\n]*+'?|#[^\n]*+"""
    r"|(?P<open>[\[{])|(?P<close>[\]}])|(?P<dot>\.)|(?P<end>[\n,=])|(?P<word>[A-Za-z0-9_+:-]++)",
    re.DOTALL,
)
_LONG = re.compile(f"[0-9]{{{WORD_LENGTH_MAX + 1}}}")
_JSON = re.compile(r'"(?:[^"\\]++|\\.)*+"?|(?P<number>[0-9]++)', re.DOTALL)


class ReadError(Exception):
    """A file or a text that is not read: says why."""


def read_bytes(path: Path, most: int) -> bytes:
    """The content of a file of at most so many bytes. Raises ReadError."""
    try:
        with os.fdopen(_opened(path, most), "rb") as file:
            content = file.read(most + 1)
    except (OSError, ValueError) as error:
        raise ReadError(_why(error)) from error
    if len(content) > most:
        raise ReadError(f"it grows while it is read, and at most {most} bytes are read")
    return content


def read_text(path: Path, most: int) -> str:
    """The same as text. Raises ReadError."""
    try:
        return read_bytes(path, most).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ReadError(f"it is no UTF-8: {error.reason} at byte {error.start}") from error


def open_text(path: Path, most: int) -> TextIO:
    """A file of at most so many bytes, opened for reading line by line. Raises ReadError."""
    try:
        return os.fdopen(_opened(path, most), "r", newline="", encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ReadError(_why(error)) from error


def _opened(path: Path, most: int) -> int:
    """A descriptor of a file. Opening waits for nobody, as it would for a pipe's other end. What is
    looked at is what was opened.
    """
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    found = os.fstat(number)
    if not stat.S_ISREG(found.st_mode) or found.st_size > most:
        os.close(number)
        if not stat.S_ISREG(found.st_mode):
            raise ReadError(f"it is {_kind_of(found.st_mode)}, not a file")
        raise ReadError(f"it has {found.st_size} bytes, and at most {most} are read")
    return number


def _kind_of(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "a folder"
    return "a pipe" if stat.S_ISFIFO(mode) else "a device or a socket"


def _why(error: OSError | ValueError) -> str:
    """A NUL in a path is a ValueError."""
    return (isinstance(error, OSError) and error.strerror) or str(error)


def decode_toml(text: str) -> dict[str, object]:
    """What TOML text says. Raises ReadError."""
    _check_shape(text)
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ReadError(f"not TOML: {error}") from error


def _check_shape(text: str) -> None:
    """Before it is decoded: tomllib takes the square of a key's parts, and nests as the text does.
    Raises ReadError.
    """
    depth = dots = 0
    for found in _TOML.finditer(text):
        match found.lastgroup:
            case "open":
                depth, dots = depth + 1, 0
            case "close":
                depth -= 1
            case "dot":
                dots += 1
            case "end":
                dots = 0
            case "word" if len(found[0]) > WORD_LENGTH_MAX:
                raise ReadError(
                    f"a key or number of {len(found[0])} characters, at most {WORD_LENGTH_MAX} "
                    "are read"
                )
        if depth > DEPTH_MAX:
            raise ReadError(f"nested more than {DEPTH_MAX} deep")
        if dots >= KEY_PARTS_MAX:
            raise ReadError(f"a key of more than {KEY_PARTS_MAX} parts")


def decode_json(content: bytes) -> object:
    """What JSON says. Raises ReadError."""
    try:
        text = content.decode("utf-8")
        # Looked at twice only if it is needed: what stands in a text may have as many digits.
        if _LONG.search(text) and any(map(_is_long, _JSON.finditer(text))):
            raise ReadError(f"a number of more than {WORD_LENGTH_MAX} digits")
        return msgspec.json.decode(text)
    except UnicodeDecodeError as error:
        raise ReadError(f"not JSON: no UTF-8 at byte {error.start}") from error
    except RecursionError as error:
        raise ReadError("nested too deep") from error
    except msgspec.DecodeError as error:
        raise ReadError(f"truncated or not JSON: {error}") from error


def _is_long(found: re.Match[str]) -> bool:
    return found.lastgroup == "number" and len(found[0]) > WORD_LENGTH_MAX


def read_json(path: Path, most: int) -> object:
    """What the JSON in a file says. Raises ReadError."""
    return decode_json(read_bytes(path, most))
