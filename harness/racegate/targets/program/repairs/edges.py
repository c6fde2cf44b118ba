"""What can be written to order the two accesses of a conflict, at the lines of the program: the
candidates, before anybody has run them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from enum import IntEnum, StrEnum
from itertools import product
from pathlib import Path

import msgspec

from racegate.history.finding import Frame, Hazard, Race, Side, Stack, place_name
from racegate.interpose.other_sources import PLACE
from racegate.interpose.outcome import PlaceSeen
from racegate.scenario.untrusted.reading import ReadError, read_text
from racegate.targets.program.repair import SOURCE_BYTES_MAX, from_here, module_of
from racegate.targets.program.source import (
    NAME,
    EventPlace,
    LineEdit,
    LineSide,
    NoPlaceError,
    PythonSource,
    free_name,
)

FRAMES_MAX = 4  # of each access, from the innermost outwards
DEFAULT_LANE, DEFAULT = "the default stream", "torch.cuda.default_stream()"
CURRENT = "torch.cuda.current_stream()"


class EdgeKind(StrEnum):
    """How two accesses are ordered.

    EVENT: an event is recorded behind the first and waited for before the second
    STREAM: before the second, its stream or the host waits for all that a stream was given
    JOIN: behind the first, the stream of the second waits for the stream of the first
    MOVED: a wait of the program stands earlier
    RECORD_STREAM: the allocator is told which stream uses the memory
    SECOND_BUFFER: what would be overwritten is left alone, and another buffer takes its place
    DEVICE: the host waits for the whole device
    """

    EVENT = "event"
    STREAM = "stream"
    JOIN = "join"
    MOVED = "moved"
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


def key_of(frame: Frame, where: LineSide) -> str:
    """What a place is asked for by."""
    return f"{where}:{path_of(frame[0])}:{frame[1]}"


def probing(races: Sequence[Race], texts: SourceFiles) -> dict[str, str]:
    """The sources in which every place where an edge could stand says what is in scope there."""
    asked: dict[str, dict[LineEdit, None]] = {}
    for race in races:
        for side, where in product((race.first, race.second), LineSide):
            for frame in side.stack[:FRAMES_MAX]:
                with suppress(NoPlaceError):
                    source = texts.of(frame[0])
                    names = source.operands(frame[1]) if where is LineSide.AFTER else ()
                    text = f"{PLACE}({key_of(frame, where)!r}, {names!r})"
                    one = LineEdit(frame[1], where, text)
                    source.with_lines([one])
                    asked.setdefault(path_of(frame[0]), {})[one] = None
    return {path: texts.of(path).with_lines(list(lines)).text for path, lines in asked.items()}


class PossibleEdges:
    """The edges that could be written for a conflict. places: what is in scope where, by key"""

    def __init__(self, texts: SourceFiles, places: Mapping[str, PlaceSeen]) -> None:
        self._texts = texts
        self._places = places

    def of(self, race: Race, *, waiter_max: WaitKind = WaitKind.HOST) -> Iterator[SourceEdge]:
        """For one conflict, the nearest first. waiter_max: the dearest wait that may be made"""
        first, second = race.first, race.second
        if first.is_host or (first.lane == second.lane and race.hazard is not Hazard.REUSE):
            return
        makers = [
            self._moved(race),
            self._second_buffer(race),
            self._record_stream(race),
            self._events(first, second),
            self._stream_waits(first, second),
            self._joins(first, second),
            self._device_waits(second),
        ]
        for found in makers:
            for edge in _possible(found):
                if edge.waiter > waiter_max:
                    continue
                with suppress(NoPlaceError):
                    self._texts.changed([edge])
                    yield edge

    def _expressions(self, key: str, lane: str) -> list[str]:
        """How the stream of a lane can be written at a place, the shortest first; empty: it is the
        current one.
        """
        seen = self._places.get(key)
        if seen is None:
            return []
        found = [""] if lane in seen.current else []
        found += seen.streams.get(lane, ())[:2]
        return found + ([DEFAULT] if lane == DEFAULT_LANE else [])

    def _stream(self, key: str, lane: str) -> str | None:
        """The same, where the current stream needs a name too; None: nothing names it there."""
        names = self._expressions(key, lane)
        return (names[0] or CURRENT) if names else None

    def _waits_for_event(self, key: str, side: Side, event: str) -> str | None:
        if side.is_host:
            return f"{event}.synchronize()"
        names = self._expressions(key, side.lane)
        if not names:
            return None
        return f"{names[0]}.wait_event({event})" if names[0] else f"{event}.wait()"

    def _events(self, first: Side, second: Side) -> Iterator[SourceEdge]:
        frames = sorted(_pairs(first.stack, second.stack), key=lambda one: (one[0], one[1]))
        for depth, _, a, b in frames:
            with suppress(NoPlaceError):
                home, imported = self._home(a, b)
                names = self._expressions(key_of(a, LineSide.AFTER), first.lane)
                wait = self._waits_for_event(key_of(b, LineSide.BEFORE), second, home.name)
                if names and wait is not None:
                    yield self._event(a, b, home, names[0], imported + wait, depth, second)

    def _home(self, a: Frame, b: Frame) -> tuple[EventPlace, str]:
        if path_of(a[0]) == path_of(b[0]):
            return self._texts.of(a[0]).home(a[1], b[1]), ""
        module = module_of(Path(path_of(a[0])))
        return self._texts.of(a[0]).module_home(a[1]), f"from {module} import {NAME}\n"

    def _event(
        self, a: Frame, b: Frame, home: EventPlace, stream: str, wait: str, depth: int, second: Side
    ) -> SourceEdge:
        made = f"{home.name}.record({stream})"
        if home.made is None:
            made = f"{home.name} = {stream or CURRENT}.record_event()"
            owner = home.name.removesuffix(f".{NAME}")
            wait = f'if hasattr({owner}, "{NAME}"):\n    {wait}'
        waiting = LineEdit(b[1], LineSide.BEFORE, wait)
        recording = [*([] if home.made is None else [home.made])]
        recording.append(LineEdit(a[1], LineSide.AFTER, made))
        return SourceEdge(
            kind=EdgeKind.EVENT,
            waiter=WaitKind.HOST if second.is_host else WaitKind.STREAM,
            words=f"an event recorded behind {place_name((a,))}, waited for by {second.lane} "
            f"before {place_name((b,))}",
            depth=depth,
            edits=_edits([(a[0], one) for one in recording] + [(b[0], waiting)]),
            wait=(b[0], waiting),
        )

    def _stream_waits(self, first: Side, second: Side) -> Iterator[SourceEdge]:
        """Also for a stream that is ordered behind the first access already: whichever has a name
        there.
        """
        for depth, frame in enumerate(second.stack[:FRAMES_MAX]):
            key = key_of(frame, LineSide.BEFORE)
            source = self._stream(key, first.lane)
            seen = self._places.get(key, PlaceSeen())
            others = [name for lane, names in seen.streams.items() for name in names[:1]]
            for stream in dict.fromkeys([*([source] if source else []), *others, DEFAULT]):
                if second.is_host:
                    yield self._waits(frame, f"{stream}.synchronize()", depth, second)
                elif (waiting := self._stream(key, second.lane)) and waiting != stream:
                    yield self._waits(frame, f"{waiting}.wait_stream({stream})", depth, second)

    def _waits(self, frame: Frame, text: str, depth: int, second: Side) -> SourceEdge:
        one = LineEdit(frame[1], LineSide.BEFORE, text)
        return SourceEdge(
            kind=EdgeKind.STREAM,
            waiter=WaitKind.HOST if second.is_host else WaitKind.STREAM,
            words=f"{text} before {place_name((frame,))}",
            depth=depth,
            edits=_edits([(frame[0], one)]),
            wait=(frame[0], one),
        )

    def _joins(self, first: Side, second: Side) -> Iterator[SourceEdge]:
        if second.is_host:
            return
        for depth, frame in enumerate(first.stack[:FRAMES_MAX]):
            key = key_of(frame, LineSide.AFTER)
            source, waiting = self._stream(key, first.lane), self._stream(key, second.lane)
            if source is None or waiting is None or source == waiting:
                continue
            one = LineEdit(frame[1], LineSide.AFTER, f"{waiting}.wait_stream({source})")
            yield SourceEdge(
                kind=EdgeKind.JOIN,
                waiter=WaitKind.STREAM,
                words=f"{one.text} behind {place_name((frame,))}",
                depth=depth,
                edits=_edits([(frame[0], one)]),
                wait=(frame[0], one),
            )

    def _moved(self, race: Race) -> Iterator[SourceEdge]:
        if not race.late:
            return
        late = race.late[0]
        for depth, frame in enumerate(race.second.stack[:FRAMES_MAX]):
            if (frame[0], frame[2]) == (late[0], late[2]):
                text = self._texts.of(late[0]).statement(late[1])
                one = LineEdit(frame[1], LineSide.BEFORE, text)
                path = path_of(frame[0])
                yield SourceEdge(
                    kind=EdgeKind.MOVED,
                    waiter=WaitKind.HOST if race.second.is_host else WaitKind.STREAM,
                    words=f"the wait at {place_name((late,))} moved before {place_name((frame,))}",
                    depth=depth,
                    edits=(FileEdit(path=path, insertions=(one,), removed=(late[1],)),),
                    wait=(frame[0], one),
                )

    def _record_stream(self, race: Race) -> Iterator[SourceEdge]:
        if race.hazard is not Hazard.REUSE:
            return
        for depth, frame in enumerate(race.first.stack[:FRAMES_MAX]):
            key = key_of(frame, LineSide.AFTER)
            stream, seen = self._stream(key, race.first.lane), self._places.get(key, PlaceSeen())
            for tensor in seen.tensors if stream is not None else ():
                one = LineEdit(frame[1], LineSide.AFTER, f"{tensor}.record_stream({stream})")
                yield SourceEdge(
                    kind=EdgeKind.RECORD_STREAM,
                    waiter=WaitKind.NOBODY,
                    words=f"{one.text} behind {place_name((frame,))}",
                    depth=depth,
                    edits=_edits([(frame[0], one)]),
                )

    def _second_buffer(self, race: Race) -> Iterator[SourceEdge]:
        """Pinned memory that the host fills anew while an upload reads it: the allocator keeps the
        old one until then.
        """
        is_filled = race.second.is_host and race.hazard is Hazard.WRITE_AFTER_READ
        if not is_filled or not race.second.stack:
            return
        frame = race.second.stack[0]
        name = self._texts.of(frame[0]).rewritten(frame[1])
        if name is None:
            return
        text = f"{name} = torch.empty_like({name}, pin_memory=True)"
        one = LineEdit(frame[1], LineSide.BEFORE, text)
        yield SourceEdge(
            kind=EdgeKind.SECOND_BUFFER,
            waiter=WaitKind.NOBODY,
            words=f"{text} before {place_name((frame,))}",
            depth=0,
            edits=_edits([(frame[0], one)]),
        )

    def _device_waits(self, second: Side) -> Iterator[SourceEdge]:
        for depth, frame in enumerate(second.stack[:FRAMES_MAX]):
            one = LineEdit(frame[1], LineSide.BEFORE, "torch.cuda.synchronize()")
            yield SourceEdge(
                kind=EdgeKind.DEVICE,
                waiter=WaitKind.DEVICE,
                words=f"{one.text} before {place_name((frame,))}",
                depth=depth,
                edits=_edits([(frame[0], one)]),
                wait=(frame[0], one),
            )


def _possible(found: Iterator[SourceEdge]) -> Iterator[SourceEdge]:
    """Those of a maker, until a source cannot be read."""
    with suppress(NoPlaceError, ValueError):
        yield from found


def _pairs(first: Stack, second: Stack) -> Iterator[tuple[int, int, Frame, Frame]]:
    """Frames of the two accesses in one file, or the innermost of two files: how far both are from
    the accesses, how far the second is, and both.
    """
    for (i, a), (j, b) in product(enumerate(first[:FRAMES_MAX]), enumerate(second[:FRAMES_MAX])):
        if a[0] == b[0] or i == j == 0:
            yield i + j, j, a, b


def _edits(lines: Sequence[tuple[str, LineEdit]]) -> tuple[FileEdit, ...]:
    files = dict.fromkeys(path_of(file) for file, _ in lines)
    return tuple(
        FileEdit(path=path, insertions=tuple(one for file, one in lines if path_of(file) == path))
        for path in files
    )
