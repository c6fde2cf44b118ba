"""An edge as a change of sources: which lines it adds and takes out, who waits, and what sources
look like with several of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum, StrEnum
from pathlib import Path

import msgspec

from racegate.scenario.untrusted.reading import ReadError, read_text
from racegate.targets.program.repair import SOURCE_BYTES_MAX, from_here
from racegate.targets.program.source import (
    NAME,
    LineEdit,
    NoPlaceError,
    PythonSource,
    free_name,
)


class EdgeKind(StrEnum):
    """How two accesses are ordered.

    EVENT: an event is recorded behind the first and waited for before the second
    STREAM: before the second, its stream or the host waits for all that a stream was given
    JOIN: behind the first, the stream of the second, or the host, waits for the stream of the first
    MOVED: a wait of the program stands earlier, for an event, a stream or another thread
    OWNER: the first is given to the stream of the second, and its own stream waits for it
    RECORD_STREAM: the allocator is told which stream uses the memory
    SECOND_BUFFER: what would be overwritten is left alone, and another buffer takes its place
    DEVICE: the host waits for the whole device
    """

    EVENT = "event"
    STREAM = "stream"
    JOIN = "join"
    MOVED = "moved"
    OWNER = "owner"
    RECORD_STREAM = "record_stream"
    SECOND_BUFFER = "second buffer"
    DEVICE = "device"


class WaitKind(IntEnum):
    """Who has to wait, from the cheapest on."""

    NOBODY = 0
    STREAM = 1
    HOST = 2
    DEVICE = 3


class FileEdit(msgspec.Struct, frozen=True, kw_only=True):
    """What an edge changes in one file. insertions: in this order; removed: lines of statements
    that are taken out
    """

    path: str
    insertions: tuple[LineEdit, ...] = ()
    removed: tuple[int, ...] = ()


class SourceEdge(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate. words: what it is; depth: how many calls it is away from the two accesses

    wait: the file, as its frames name it, and the line that waits; None where nobody does
    """

    kind: EdgeKind
    waiter: WaitKind
    words: str
    depth: int
    edits: tuple[FileEdit, ...]
    wait: tuple[str, LineEdit] | None = None

    @property
    def paths(self) -> frozenset[str]:
        """The files that it changes, by their absolute paths."""
        return frozenset(edit.path for edit in self.edits)

    @property
    def lines(self) -> int:
        """How many lines of source it changes."""
        return sum(
            sum(one.text.count("\n") + 1 for one in edit.insertions) + len(edit.removed)
            for edit in self.edits
        )


class SourceFiles:
    """The sources that findings name, each read and parsed once. A file is known by its absolute
    path.
    """

    def __init__(self) -> None:
        self._known: dict[str, PythonSource] = {}

    def of(self, file: str) -> PythonSource:
        """Raises NoPlaceError with the reason if it is no readable Python."""
        path = path_of(file)
        if path not in self._known:
            try:
                self._known[path] = PythonSource(read_text(Path(path), SOURCE_BYTES_MAX))
            except (ReadError, SyntaxError, ValueError, RecursionError) as error:
                raise NoPlaceError(f"{from_here(path)} cannot be read: {error}") from None
        return self._known[path]

    def changed(self, edges: Sequence[SourceEdge]) -> tuple[dict[str, str], dict[int, str]]:
        """The files with all these edges, by path, and the `file:line` of each edge's wait, by its
        place among the edges. Raises NoPlaceError.
        """
        edits = [(at, edit) for at, edge in enumerate(edges) for edit in edge.edits]
        names = self._names([edge for edge in edges if any(_has_event(e) for e in edge.edits)])
        texts, waits = {}, {}
        for path in dict.fromkeys(edit.path for _, edit in edits):
            mine = [(at, edit) for at, edit in edits if edit.path == path]
            lines = [
                (at, one, one._replace(text=one.text.replace(NAME, names.get(edges[at], ""))))
                for at, edit in mine
                for one in edit.insertions
            ]
            removed = [line for _, edit in mine for line in edit.removed]
            edited = self.of(path).with_lines([new for _, _, new in lines], removed)
            texts[path] = edited.text
            for at, old, new in lines:
                wait = edges[at].wait
                if wait is not None and (path_of(wait[0]), wait[1]) == (path, old):
                    waits[at] = f"{wait[0]}:{edited.lines[new] + old.text.count(chr(10))}"
        return texts, waits

    def _names(self, edges: Sequence[SourceEdge]) -> dict[SourceEdge, str]:
        """A name for the event of each edge, that none of its files has."""
        names: dict[SourceEdge, str] = {}
        for edge in edges:
            texts = [self.of(edit.path).text for edit in edge.edits]
            names[edge] = free_name("\n".join([*texts, *names.values()]))
        return names


def _has_event(edit: FileEdit) -> bool:
    return any(NAME in one.text for one in edit.insertions)


def path_of(file: str) -> str:
    """The absolute path of a frame's file."""
    return str(Path(file).resolve()) if Path(file).is_absolute() else str(Path.cwd() / file)
