"""The engine's own sources in its process: which lines run, and what an edit makes of them."""

from __future__ import annotations

import linecache
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, FunctionType
from typing import Any, TypeAlias

import msgspec

from racegate.interpose.kernels.kept.effects import LinesRun
from racegate.interpose.kernels.kept.memo import Memo
from racegate.interpose.other_sources import read_instead
from racegate.interpose.outcome import Sources
from racegate.targets.common.inside.exchange import exchange_code
from racegate.targets.common.inside.serve import NotTaken
from racegate.targets.common.wire import NOT_EDITED, SOURCES, SourceEdit

_INTERPRETER = "triton.runtime.interpreter"
_FileLines: TypeAlias = defaultdict[str, set[int]]  # by path below the folder of the package


def read_texts(folder: Path) -> Sources:
    """The texts that the engine reads from now on in the place of its files, if it was given any.
    folder: the engine's
    """
    file = folder / SOURCES
    texts = msgspec.json.decode(file.read_bytes(), type=Sources) if file.exists() else ()
    if texts:
        read_instead(texts)
    return texts


class LineTracer:
    """Notes the lines of a package that run. package: its name; it may be imported later

    Those of a launch are noted apart, so that one that need not run again can have them too.
    """

    def __init__(self, package: str) -> None:
        self._package = package
        self._lines: _FileLines = defaultdict(set)
        self._known: dict[str, set[int] | None] = {}  # by file, none of another package
        self._around: _FileLines | None = None  # while a launch is set apart

    @contextmanager
    def tracing(self) -> Iterator[None]:
        """Inside, in this thread: functions that are called from now on."""
        before = sys.gettrace()
        sys.settrace(self._on_call)
        try:
            yield
        finally:
            sys.settrace(before)

    def lines(self) -> dict[str, tuple[int, ...]]:
        """By path below the folder of the package."""
        self.rejoin()
        return _told(self._lines)

    def set_apart(self) -> None:
        """What runs from now on is a launch; one that never ended before it counts as ended."""
        self.rejoin()
        self._around, self._lines = self._lines, defaultdict(set)
        self._known.clear()

    def rejoin(self) -> LinesRun:
        """The lines of that launch, which count as all others do from now on."""
        if self._around is None:
            return {}
        lines = _told(self._lines)
        self._lines, self._around = self._around, None
        self._known.clear()
        self.add(lines)
        return lines

    def add(self, lines: LinesRun) -> None:
        """Those of a launch that ran them before."""
        for path, found in lines.items():
            self._lines[path].update(found)

    def _on_call(self, frame: FrameType, event: str, argument: object) -> Any:
        file = frame.f_code.co_filename
        if file not in self._known:
            _, is_inside, path = file.rpartition(f"/{self._package}/")
            self._known[file] = self._lines[path] if is_inside and path.endswith(".py") else None
        found = self._known[file]
        if found is None:
            return None
        found.add(frame.f_lineno)

        def on_line(frame: FrameType, event: str, argument: object) -> Any:
            if event == "line":
                found.add(frame.f_lineno)
            return on_line

        return on_line


def _told(lines: _FileLines) -> LinesRun:
    return {path: tuple(sorted(found)) for path, found in sorted(lines.items()) if found}


def edit_source(edit: SourceEdit, memo: Memo) -> None:
    """Gives the functions that run the code of an edited source. memo: is told of edited kernels.
    Raises NotTaken where that is not to be had in a process that has started: the edit is in what
    an import does, or what it makes is no Python.
    """
    module = sys.modules[edit.module]
    path = Path(str(module.__file__))
    before = path.read_bytes()
    after = before[: edit.start] + edit.text.encode() + before[edit.end :]
    kernels = _kernels(str(path))
    try:
        changed = exchange_code(module, before, after, more=kernels)
    except SyntaxError as error:
        raise NotTaken(f"{error}: {edit.module} {NOT_EDITED}") from error
    if not changed:
        raise NotTaken(f"{edit.module} {NOT_EDITED}")
    edited = [function for function in changed if function in kernels]
    if edited:
        # The interpreter of kernels reads their source.
        linecache.cache[str(path)] = (len(after), None, after.decode().splitlines(True), str(path))
        interpreted = sys.modules[_INTERPRETER].InterpretedFunction
        for kernel in edited:
            captured = interpreted.rewritten_fn.pop(kernel)  # launches of graphs have this one
            captured.__code__ = interpreted(kernel).rewrite().__code__
        memo.edited()


def _kernels(file: str) -> list[FunctionType]:
    """The interpreted kernels of a file that have run."""
    if _INTERPRETER not in sys.modules:
        return []
    known = sys.modules[_INTERPRETER].InterpretedFunction.rewritten_fn
    return [function for function in known if function.__code__.co_filename == file]
