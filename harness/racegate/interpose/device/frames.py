"""Whose code runs: which frames of a stack are the program's (native/frames.c walks them), and
which work of a thread is the device's own.
"""

from __future__ import annotations

import os
import threading
from enum import Enum
from importlib.machinery import PathFinder
from pathlib import Path
from types import CodeType

from racegate.order.native.compiler import cache_folder


def _folders(*packages: str) -> tuple[str, ...]:
    """Where these packages really are, as beginnings of their files' names."""
    specs = [PathFinder.find_spec(name) for name in packages]
    return tuple(
        os.path.join(place, "")
        for spec in specs
        if spec is not None
        for place in spec.submodule_search_locations or ()
    )


_STANDARD = os.path.join(Path(os.__file__).parent, "")
_OURS = os.path.join(Path(__file__).parent.parent, "")
_CHILD = _OURS + "child.py"
COMPILED = cache_folder() / "inductor"  # what torch.compile writes and runs
_COMPILED = os.path.join(COMPILED, "")
_LIBRARIES = (*_folders("torch", "numpy", "triton"), _COMPILED)
# Lies between two calls of ours where an operator asks its next kernel.
_BETWEEN = tuple(folder + "_ops.py" for folder in _folders("torch"))
_RUNNERS = _folders("_pytest", "pluggy")


class OwnDepth(threading.local):
    """Per thread: how deep it is in the device's own work. As a context it goes one deeper."""

    depth = 0

    def __enter__(self) -> None:
        self.depth += 1

    def __exit__(self, *exc: object) -> None:
        self.depth -= 1


class _File(Enum):
    """Whose code a file holds. BELOW: what runs the program; no frame of it follows. LIBRARY: of
    torch and what it computes with.
    """

    OTHER = 0
    PROGRAM = 1
    BELOW = 2
    LIBRARY = 3


def kind_of_code(code: CodeType) -> int:
    """Whose code it is, as native/frames.c numbers it."""
    return _kind_of_file(code.co_filename).value


def is_program_file(name: str) -> bool:
    """Whether code of this file is the program's: not torch's, the standard library's, ours."""
    return _kind_of_file(name) is _File.PROGRAM


def is_compiled_file(name: str) -> bool:
    """Whether torch's compiler wrote it, of code of the program."""
    return name.startswith(_COMPILED)


def without_ours(files: list[str]) -> list[int]:
    """Which frames of a stack a GPU's would have, by their files, innermost first: the program's,
    torch's above it and what starts it.
    """
    inner = 0
    for at, file in enumerate(files):
        if file.startswith(_OURS):
            inner = at + 1
        elif file not in _BETWEEN:
            break
    return [at for at in range(inner, len(files)) if not files[at].startswith(_OURS)]


def _kind_of_file(name: str) -> _File:
    if name == _CHILD:
        return _File.BELOW
    if name.startswith(("<", _OURS)):
        return _File.OTHER
    if name.startswith(_LIBRARIES):
        return _File.LIBRARY
    if name.startswith(_RUNNERS):
        return _File.BELOW
    is_standard = name.startswith(_STANDARD) and "site-packages" not in name[len(_STANDARD) :]
    return _File.OTHER if is_standard else _File.PROGRAM
