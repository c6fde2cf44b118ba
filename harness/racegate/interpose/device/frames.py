"""Whose code runs: which frames of a stack are the program's (native/frames.c walks them), and
which work of a thread is the device's own.
"""

from __future__ import annotations

import os
import threading
from enum import Enum
from pathlib import Path
from types import CodeType

_STANDARD = str(Path(os.__file__).parent)
_OURS = str(Path(__file__).parent.parent)
_CHILD = str(Path(_OURS) / "child.py")


class OwnDepth(threading.local):
    """Per thread: how deep it is in the device's own work. As a context it goes one deeper."""

    depth = 0

    def __enter__(self) -> None:
        self.depth += 1

    def __exit__(self, *exc: object) -> None:
        self.depth -= 1


class _File(Enum):
    """Whose code a file holds. BELOW: what runs the program; no frame of it follows."""

    OTHER = 0
    PROGRAM = 1
    BELOW = 2


def kind_of_code(code: CodeType) -> int:
    """Whose code it is, as native/frames.c numbers it."""
    return _kind_of_file(code.co_filename).value


def is_program_file(name: str) -> bool:
    """Whether code of this file is the program's: not torch's, the standard library's, ours."""
    return _kind_of_file(name) is _File.PROGRAM


def _kind_of_file(name: str) -> _File:
    if name == _CHILD:
        return _File.BELOW
    if name.startswith(("<", _OURS)):
        return _File.OTHER
    if name.startswith(_STANDARD) and "site-packages" not in name:
        return _File.OTHER
    parts = name.split(os.sep)
    if "site-packages" in parts and {"_pytest", "pluggy"} & set(parts):
        return _File.BELOW
    is_known = "site-packages" in parts and {"torch", "numpy", "triton"} & set(parts)
    return _File.OTHER if is_known else _File.PROGRAM
