"""The program's frames of a Python stack: on the path of every event."""

from __future__ import annotations

import os
from enum import Enum
from pathlib import Path
from types import CodeType, FrameType

from racegate.interpose.order.recorder import Stack
from racegate.interpose.order.shadow import Frame

FRAMES_MAX = 8
_STANDARD = str(Path(os.__file__).parent)
_OURS = str(Path(__file__).parent.parent)
_CHILD = str(Path(_OURS) / "child.py")


class _File(Enum):
    """Whose code a file holds. BELOW: what runs the program; no frame of it follows."""

    PROGRAM = "program"
    OTHER = "other"
    BELOW = "below"


_Places = dict[int, Frame]  # the frames of one code object, by instruction
_NOT_SEEN: _Places = {}
_BELOW: _Places = {}


class Frames:
    """Frames by code object and instruction: a place is made once."""

    def __init__(self) -> None:
        # By the id of the code: its hash reads all of it. None: no code of the program.
        self._codes: dict[int, _Places | None] = {}
        self._kept: list[CodeType] = []  # so that no other gets its id

    def walk(self, frame: FrameType | None) -> Stack:
        """On the path of every event. Places by the instruction: its line is searched for from the
        function's first.
        """
        frames: list[Frame] = []
        codes = self._codes
        while frame is not None:
            code = frame.f_code
            places = codes.get(id(code), _NOT_SEEN)
            if places is None:
                frame = frame.f_back
                continue
            if places is _NOT_SEEN:
                self._learn(code)
                continue
            if places is _BELOW:
                break
            at = frame.f_lasti
            place = places.get(at)
            if place is None:
                place = places[at] = (code.co_filename, frame.f_lineno, code.co_qualname)
            frames.append(place)
            if len(frames) == FRAMES_MAX or _is_main(code, frame):
                break
            frame = frame.f_back
        return tuple(frames)

    def _learn(self, code: CodeType) -> None:
        self._kept.append(code)
        kind = _kind_of_file(code.co_filename)
        self._codes[id(code)] = {} if kind is _File.PROGRAM else None
        if kind is _File.BELOW:
            self._codes[id(code)] = _BELOW


def _is_main(code: CodeType, frame: FrameType) -> bool:
    """Whether this is the script, or the module, that the program is: what runs it follows."""
    return code.co_name == "<module>" and frame.f_globals.get("__name__") == "__main__"


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
