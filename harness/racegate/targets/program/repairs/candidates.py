"""What can be written to order the two accesses of a conflict, at the lines of the program: the
candidates, before anybody has run them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path

from racegate.history.finding import Frame, Hazard, Race, Side, Stack, place_name
from racegate.interpose.outcome import PLACE, PlaceSeen
from racegate.targets.program.repair import module_of
from racegate.targets.program.repairs.edges import (
    EdgeKind,
    FileEdit,
    SourceEdge,
    SourceFiles,
    WaitKind,
    path_of,
)
from racegate.targets.program.source import NAME, EventPlace, LineEdit, LineSide, NoPlaceError

FRAMES_MAX = 4  # of each access, from the innermost outwards
DEFAULT_LANE, DEFAULT = "the default stream", "torch.cuda.default_stream()"
CURRENT = "torch.cuda.current_stream()"


def key_of(frame: Frame, where: LineSide) -> str:
    """What a place is asked for by."""
    return f"{where}:{path_of(frame[0])}:{frame[1]}"


def apart(race: Race) -> tuple[Stack, Stack]:
    """The frames of both accesses up to where one call leads to both: what stands around that does
    not tell them apart. At least the innermost of each.
    """
    first, second = race.first.stack, race.second.stack
    if first[:1] == second[:1]:  # a loop somewhere around that line
        return first[:FRAMES_MAX], second[:FRAMES_MAX]
    shared = 0
    while shared < min(len(first), len(second)) - 1 and first[~shared] == second[~shared]:
        shared += 1
    ends = (len(first) - shared, len(second) - shared)
    return first[: min(ends[0], FRAMES_MAX)], second[: min(ends[1], FRAMES_MAX)]


def probing(races: Sequence[Race], texts: SourceFiles) -> dict[str, str]:
    """The sources in which every place where an edge could stand says what is in scope there."""
    asked: dict[str, dict[LineEdit, None]] = {}
    for race in races:
        for stack, where in product(apart(race), LineSide):
            for frame in stack:
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

    def of(self, race: Race, *, waiter_max: WaitKind = WaitKind.HOST) -> list[SourceEdge]:
        """For one conflict, the nearest first. waiter_max: the dearest wait that may be made"""
        first, second = race.first, race.second
        here, there = apart(race)
        is_one_lane = first.lane == second.lane and race.hazard is not Hazard.REUSE
        makers = [self._handed_over_earlier(here), self._handed_over_earlier(there)]
        if not (first.is_host or is_one_lane):
            makers += self._of_the_device(race, here, there)
        found = [edge for made in makers for edge in _possible(made) if edge.waiter <= waiter_max]
        return sorted(filter(self._is_writable, found), key=lambda edge: edge.depth)

    def _of_the_device(self, race: Race, here: Stack, there: Stack) -> list[Iterator[SourceEdge]]:
        first, second = race.first, race.second
        return [
            self._moved(race, there),
            self._second_buffer(race, there),
            self._record_stream(race, here),
            self._record_stream(race, there),
            self._events(first, second, here, there),
            self._stream_waits(first, second, there),
            self._behind(first, second, here),
            self._on_owner(race, here),
            self._device_waits(there),
        ]

    def _handed_over_earlier(self, stack: Stack) -> Iterator[SourceEdge]:
        """A wait for another thread that stands behind an access, moved before it."""
        for depth, frame in enumerate(stack):
            source = self._texts.of(frame[0])
            for line in source.handovers_behind(frame[1]):
                yield self._moving((frame[0], line, frame[2]), frame, depth, WaitKind.HOST)

    def _moving(self, late: Frame, frame: Frame, depth: int, waiter: WaitKind) -> SourceEdge:
        text = self._texts.of(late[0]).statement(late[1])
        one = LineEdit(frame[1], LineSide.BEFORE, text)
        return SourceEdge(
            kind=EdgeKind.MOVED,
            waiter=waiter,
            words=f"the wait at {place_name((late,))} moved before {place_name((frame,))}",
            depth=depth,
            edits=(FileEdit(path=path_of(frame[0]), insertions=(one,), removed=(late[1],)),),
            wait=(frame[0], one),
        )

    def _is_writable(self, edge: SourceEdge) -> bool:
        try:
            self._texts.changed([edge])
        except NoPlaceError:
            return False
        return True

    def _with_torch(self, frame: Frame, text: str) -> str:
        """A line that names torch, where its source may not."""
        has_name = "torch." not in text or self._texts.of(frame[0]).imports_torch
        return text if has_name else f"import torch\n{text}"

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

    def stream(self, key: str, lane: str) -> str | None:
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

    def _events(self, first: Side, second: Side, here: Stack, there: Stack) -> Iterator[SourceEdge]:
        for depth, a, b in _pairs(here, there):
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

    def _stream_waits(self, first: Side, second: Side, there: Stack) -> Iterator[SourceEdge]:
        """Also for a stream that is ordered behind the first access already: whichever has a name
        there.
        """
        for depth, frame in enumerate(there):
            key = key_of(frame, LineSide.BEFORE)
            source = self.stream(key, first.lane)
            seen = self._places.get(key, PlaceSeen())
            others = [name for lane, names in seen.streams.items() for name in names[:1]]
            for stream in dict.fromkeys([*([source] if source else []), *others, DEFAULT]):
                if second.is_host:
                    yield self._waits(frame, f"{stream}.synchronize()", depth, second)
                elif (waiting := self.stream(key, second.lane)) and waiting != stream:
                    yield self._waits(frame, f"{waiting}.wait_stream({stream})", depth, second)

    def _waits(self, frame: Frame, text: str, depth: int, second: Side) -> SourceEdge:
        return self._line(
            EdgeKind.STREAM,
            WaitKind.HOST if second.is_host else WaitKind.STREAM,
            frame,
            LineSide.BEFORE,
            text,
            depth,
        )

    def _line(
        self,
        kind: EdgeKind,
        waiter: WaitKind,
        frame: Frame,
        side: LineSide,
        text: str,
        depth: int,
    ) -> SourceEdge:
        """An edge that is one line at a frame."""
        one = LineEdit(frame[1], side, self._with_torch(frame, text))
        where = "before" if side is LineSide.BEFORE else "behind"
        return SourceEdge(
            kind=kind,
            waiter=waiter,
            words=f"{text} {where} {place_name((frame,))}",
            depth=depth,
            edits=_edits([(frame[0], one)]),
            wait=(frame[0], one),
        )

    def _behind(self, first: Side, second: Side, here: Stack) -> Iterator[SourceEdge]:
        """The wait stands behind the first access: also where the second is seen late."""
        for depth, frame in enumerate(here):
            key = key_of(frame, LineSide.AFTER)
            source, waiting = self.stream(key, first.lane), self.stream(key, second.lane)
            if source is not None and second.is_host:
                text, waiter = f"{source}.synchronize()", WaitKind.HOST
            elif source is not None and waiting is not None and source != waiting:
                text, waiter = f"{waiting}.wait_stream({source})", WaitKind.STREAM
            else:
                continue
            yield self._line(EdgeKind.JOIN, waiter, frame, LineSide.AFTER, text, depth)

    def _moved(self, race: Race, there: Stack) -> Iterator[SourceEdge]:
        if not race.late:
            return
        late = race.late[0]
        for depth, frame in enumerate(there):
            if (frame[0], frame[2]) == (late[0], late[2]):
                waiter = WaitKind.HOST if race.second.is_host else WaitKind.STREAM
                yield self._moving(late, frame, depth, waiter)

    def _record_stream(self, race: Race, stack: Stack) -> Iterator[SourceEdge]:
        """Where the memory was used, or where the next tensor gets it: a loop asks for it there."""
        if race.hazard is not Hazard.REUSE:
            return
        for depth, frame in enumerate(stack):
            key = key_of(frame, LineSide.AFTER)
            stream, seen = self.stream(key, race.first.lane), self._places.get(key, PlaceSeen())
            for tensor in seen.tensors if stream is not None else ():
                text = f"{tensor}.record_stream({stream})"
                kind, waiter = EdgeKind.RECORD_STREAM, WaitKind.NOBODY
                yield self._line(kind, waiter, frame, LineSide.AFTER, text, depth)

    def _on_owner(self, race: Race, here: Stack) -> Iterator[SourceEdge]:
        """What reads another stream's memory is given to that stream, and its own waits for it."""
        if race.hazard is not Hazard.REUSE:
            return
        for depth, frame in enumerate(here):
            key = key_of(frame, LineSide.BEFORE)
            reader, owner = self.stream(key, race.first.lane), self.stream(key, race.second.lane)
            with suppress(NoPlaceError):
                text = self._texts.of(frame[0]).statement(frame[1])
                if not (reader and owner) or reader == owner or not _is_movable(text):
                    continue
                lines = (f"with torch.cuda.stream({owner}):", f"    {text}")
                given = "\n".join((*lines, f"{reader}.wait_stream({owner})"))
                one = LineEdit(frame[1], LineSide.BEFORE, self._with_torch(frame, given))
                yield SourceEdge(
                    kind=EdgeKind.OWNER,
                    waiter=WaitKind.STREAM,
                    words=f"{place_name((frame,))} given to {owner}, which {reader} waits for",
                    depth=depth,
                    edits=(
                        FileEdit(path=path_of(frame[0]), insertions=(one,), removed=(frame[1],)),
                    ),
                    wait=(frame[0], one),
                )

    def _second_buffer(self, race: Race, there: Stack) -> Iterator[SourceEdge]:
        """Pinned memory that the host fills anew while an upload reads it: the allocator keeps the
        old one until then.
        """
        if not race.second.is_host or race.hazard is not Hazard.WRITE_AFTER_READ:
            return
        for frame in there[:1]:
            name = self._texts.of(frame[0]).rewritten(frame[1])
            if name is not None:
                text = f"{name} = torch.empty_like({name}, pin_memory=True)"
                kind, waiter = EdgeKind.SECOND_BUFFER, WaitKind.NOBODY
                yield self._line(kind, waiter, frame, LineSide.BEFORE, text, 0)

    def _device_waits(self, there: Stack) -> Iterator[SourceEdge]:
        for depth, frame in enumerate(there):
            text = "torch.cuda.synchronize()"
            yield self._line(EdgeKind.DEVICE, WaitKind.DEVICE, frame, LineSide.BEFORE, text, depth)


def _possible(found: Iterator[SourceEdge]) -> Iterator[SourceEdge]:
    """Those of a maker, until a source cannot be read."""
    with suppress(NoPlaceError, ValueError):
        yield from found


def _pairs(here: Stack, there: Stack) -> list[tuple[int, Frame, Frame]]:
    """Frames of the two accesses in one file, or the innermost of two files, with how far both are
    from the accesses; the nearest first, then those nearest to the second.
    """
    found = [
        (i + j, j, a, b)
        for (i, a), (j, b) in product(enumerate(here), enumerate(there))
        if a[0] == b[0] or i == j == 0
    ]
    return [(depth, a, b) for depth, _, a, b in sorted(found, key=lambda one: one[:2])]


def _is_movable(statement: str) -> bool:
    """Whether it can be indented, and something can follow: the texts of a statement over several
    lines would change.
    """
    return "\n" not in statement and not re.match(r"(return|raise|break|continue)\b", statement)


def _edits(lines: Sequence[tuple[str, LineEdit]]) -> tuple[FileEdit, ...]:
    files = dict.fromkeys(path_of(file) for file, _ in lines)
    return tuple(
        FileEdit(path=path, insertions=tuple(one for file, one in lines if path_of(file) == path))
        for path in files
    )
