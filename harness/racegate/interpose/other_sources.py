"""A run of the program with other texts in the place of its files, and what is in scope at a line
of such a text. Nothing on disk changes.
"""

from __future__ import annotations

import builtins
import io
import linecache
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.machinery import SourceFileLoader
from types import FrameType
from typing import IO

import torch

from racegate.interpose.device.session import Session
from racegate.interpose.native.streams import current_stream, handle_of
from racegate.interpose.outcome import PLACE, Ending, PlaceSeen
from racegate.interpose.program.names import expressions

_VISITS_MAX = 64  # of one place; looking at all variables of a loop costs more than the loop


def read_instead(sources: Sequence[tuple[str, str]]) -> None:
    """From now on Python reads these texts, by absolute path, where it would read the files: as
    the script, when a module is imported, and when a function is asked for its source.
    """
    texts = dict(sources)
    open_code, path_stats = io.open_code, SourceFileLoader.path_stats

    def open_text(path: str) -> IO[bytes]:
        text = texts.get(os.path.abspath(path))
        return open_code(path) if text is None else io.BytesIO(text.encode())

    def stats(loader: SourceFileLoader, path: str) -> Mapping[str, object]:
        if os.path.abspath(path) in texts:
            raise OSError("a compiled file is of the text on disk")
        return path_stats(loader, path)

    _set(io, "open_code", open_text)
    _set(sys.modules["_io"], "open_code", open_text)
    _set(SourceFileLoader, "path_stats", stats)
    for path, text in texts.items():
        for name in (path, os.path.relpath(path)):
            linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)


def fail_with_threads(finish: Callable[[Ending, int, str], object]) -> None:
    """From now on an error that ends a thread ends the run: what was put into a text may have made
    it, and a program that asks again and again for the thread's work would never end.
    """

    def told(died: threading.ExceptHookArgs) -> None:
        threading.__excepthook__(died)
        if not issubclass(died.exc_type, SystemExit):
            said = f"{died.exc_type.__name__}: {died.exc_value}"
            try:
                finish(Ending.FAILED, 1, f"a thread of the program ended with {said}")
            finally:
                os._exit(1)

    _set(threading, "excepthook", told)


def ask_of_texts(
    session: Session, places: PlaceWatch, finish: Callable[[Ending, int, str], object]
) -> None:
    """The run that begins is one of other texts: where they ask for it, what is in scope is told,
    what their waits cost, and an error that ends a thread ends it.
    """
    fail_with_threads(finish)
    places.install()
    session.recorder.price_waits()


def _set(owner: object, name: str, value: object) -> None:
    setattr(owner, name, value)


class PlaceWatch:
    """What is in scope where the text of a run says that it is there. Streams are known by handle
    until the run is over: a stream has no lane before it is used.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._visits: Counter[str] = Counter()
        self._current: dict[str, set[int]] = {}
        self._named: dict[str, dict[int, list[str]]] = {}
        self._tensors: dict[str, list[str]] = {}

    def install(self) -> None:
        """The texts can call it."""
        _set(builtins, PLACE, self.visit)

    def visit(self, key: str, asked: Sequence[str] = ()) -> None:
        """The program is there. asked: expressions that may be tensors of the device"""
        self._visits[key] += 1
        if self._visits[key] > _VISITS_MAX:
            return
        frame = sys._getframe(1)
        with self._session.own():
            handle = current_stream()
            self._current.setdefault(key, set()).add(handle)
            self._see_streams(key, frame)
            self._see_tensors(key, frame, asked)

    def _see_streams(self, key: str, frame: FrameType) -> None:
        """Of two visits only what has the same name in both is kept."""
        found: dict[int, list[str]] = {}
        for name, value in expressions(frame):
            with suppress(Exception):
                if isinstance(value, torch.cuda.Stream):
                    found.setdefault(handle_of(value), []).append(name)
        known = self._named.setdefault(key, found)
        for handle, names in found.items():
            before = known.get(handle, names)
            known[handle] = [name for name in before if name in names]

    def _see_tensors(self, key: str, frame: FrameType, asked: Sequence[str]) -> None:
        known = self._tensors.setdefault(key, [])
        for text in asked:
            with suppress(Exception):
                value = eval(text, frame.f_globals, frame.f_locals)
                if isinstance(value, torch.Tensor) and value.is_cuda and text not in known:
                    known.append(text)

    def seen(self) -> dict[str, PlaceSeen]:
        """By key, with lanes in the place of streams. The run is over: who asks for the lane of a
        stream that was never used makes one.
        """
        names, lane_of = self._session.recorder.lanes.names, self._session.stream_lane
        return {
            key: PlaceSeen(
                current=tuple(sorted({names[lane_of(handle)] for handle in self._current[key]})),
                streams={
                    names[lane_of(handle)]: tuple(found)
                    for handle, found in self._named[key].items()
                    if found
                },
                tensors=tuple(self._tensors[key]),
            )
            for key in self._visits
        }
