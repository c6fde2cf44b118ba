"""The program's frames of a Python stack: on the path of every event."""

from __future__ import annotations

import os
from dataclasses import dataclass
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


@dataclass(slots=True)
class _Code:
    """What is known of a code object. places: its frames by instruction; code: kept, so that no
    other gets its id.
    """

    kind: _File
    code: CodeType
    places: dict[int, Frame]


class Frames:
    """Frames by code object and instruction: a place is made once."""

    def __init__(self) -> None:
        self._codes: dict[int, _Code] = {}

    def walk(self, frame: FrameType | None) -> Stack:
        """On the path of every event: by the id of the code (its hash reads all of it), and by the
        instruction (its line is searched for from the function's first).
        """
        frames: list[Frame] = []
        codes = self._codes
        program, below = _File.PROGRAM, _File.BELOW
        while frame is not None:
            code = frame.f_code
            known = codes.get(id(code))
            if known is None:
                known = codes[id(code)] = _Code(_kind_of_file(code.co_filename), code, {})
            kind = known.kind
            if kind is program:
                at = frame.f_lasti
                place = known.places.get(at)
                if place is None:
                    place = (code.co_filename, frame.f_lineno, code.co_qualname)
                    known.places[at] = place
                frames.append(place)
                if len(frames) == FRAMES_MAX:
                    break
            elif kind is below:
                break
            frame = frame.f_back
        return tuple(frames)


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
