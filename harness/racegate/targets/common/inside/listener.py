"""What an engine adds to the session on its device: operations are called by function, buffer and
count.

A name like `d2h num_accepted_tokens_cpu@_update_states_after_model_execute#3` stands for the same
operation in the next release, where the line is another.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import TypeAlias

from racegate.interpose.device.queue import Work, WorkQueue
from racegate.order.ranges import Ranges
from racegate.order.recorder import Stack
from racegate.targets.common.inside.convergence import Heard

_OURS = Path(__file__).parents[1]
# Functions that copy on somebody's behalf: their caller says more.
_HELPERS = frozenset({
    "copy_to_gpu", "copy_to_cpu", "async_tensor_h2d", "async_copy_to_gpu", "copy_to_uva",
    "<listcomp>", "<genexpr>", "<lambda>", "__init__", "__getitem__",
})  # fmt: skip

_KERNEL = "kernel "  # of Triton, whose bytes are known one by one
_TEMPORARY = "temporary"  # memory that has no name


Settings: TypeAlias = tuple[tuple[str, object], ...]  # names, and a number or flag of each


class EngineListener:
    """Copies and host accesses are named with their buffer, all by function instead of line.

    own: where code is that works on the engine's behalf: no operation is called by its functions
    gaps: per held operation, the accesses to its bytes that came while it was held
    turns: by label the turn of the engine's loop in which it was made
    stream_of: the current stream of the device
    tensor_of: [first byte, one past the last) of the tensor that the program has at an address
    """

    def __init__(
        self,
        *,
        own: tuple[Path, ...] = (),
        stream_of: Callable[[], int] = lambda: 0,
        tensor_of: Callable[[int], tuple[int, int] | None] = lambda _: None,
    ) -> None:
        self._ours = tuple(map(str, (_OURS, *own)))
        self._stream_of = stream_of
        self._tensor_of = tensor_of
        self._first = 0  # the stream on which the run began
        self._on_first: dict[str, set[bool]] = {}
        self._footprints: dict[str, list[tuple[list[str], list[str]]]] = {}
        self._settings: dict[str, list[object]] = {}
        self.gaps: dict[str, list[str]] = {}
        self.turns: dict[str, int] = {}
        self.turn = 0
        self._heard: Heard | None = None
        self._on_gap: Callable[[str], None] | None = None
        self._counts: dict[str, int] = {}
        self._held: dict[str, tuple[Ranges, Ranges]] = {}
        self._was_pending = False
        self._lows: list[int] = []
        self._named: list[tuple[int, str]] = []
        self._stacks: dict[int, tuple[Stack, Stack]] = {}

    def begin(self, *, heard: Heard | None = None) -> None:
        """A run begins: nothing of another one is told with it, and counts start again. heard: what
        the host gets from the device, if that is noted
        """
        self._heard = heard
        self.turn = 0
        self._first = self._stream_of()
        of_a_run = (self._counts, self.turns, self._held, self.gaps, self._on_first)
        for known in (*of_a_run, self._footprints, self._settings):
            known.clear()

    def begin_turn(self, turn: int) -> None:
        """The engine's loop turns."""
        self.turn = turn

    def stop_hearing(self) -> None:
        """What the host gets from the device is of no use any more."""
        self._heard = None

    def tell_gaps(self, on_gap: Callable[[str], None] | None) -> None:
        """on_gap: called before each gap of a held operation but the first, which is another run's
        landing
        """
        self._on_gap = on_gap

    def told_gaps(self) -> dict[str, tuple[str, ...]]:
        """Each gap once, in order."""
        return {held: tuple(dict.fromkeys(labels)) for held, labels in self.gaps.items()}

    def streams(self) -> dict[str, list[str]]:
        """By the name of operations without their number, on which streams they are asked for."""
        words = {True: "the stream of the run", False: "another stream"}
        on_first = self._on_first.items()
        return {place: sorted(words[is_first] for is_first in on) for place, on in on_first}

    def footprints(self) -> dict[str, list[list[str]]]:
        """By the name of a kernel, or of a copy of memory that has one: which bytes of tensors each
        of them has read, and written, counted from the beginning of each, and in no order of them.
        """
        found: dict[str, list[list[str]]] = {}
        for name, launches in self._footprints.items():
            found[f"{name}: bytes read"] = [read for read, _ in launches]
            found[f"{name}: bytes written"] = [written for _, written in launches]
        return found

    def note_settings(self, kernel: str, settings: Settings) -> None:
        """A launch of a kernel is given these numbers and flags."""
        for name, value in settings:
            values = self._settings.setdefault(f"{kernel}: given {name}", [])
            if not values or values[-1] != value:
                values.append(value)

    def settings(self) -> dict[str, list[object]]:
        """By the names of a kernel and of what it is given, what that is: in the order of launches,
        and once for those that follow one another with the same.
        """
        return dict(self._settings)

    @property
    def digest(self) -> tuple[int, ...]:
        """Of what the host has got from the device."""
        return () if self._heard is None else self._heard.digest

    @property
    def hears(self) -> bool:
        return self._heard is not None

    def name_buffers(self, found: list[tuple[int, int, str]]) -> None:
        """(first byte, one past the last, name) of memory that has a name in the engine."""
        found = sorted(found)
        self._lows = [low for low, _, _ in found]
        self._named = [(high, name) for _, high, name in found]

    def buffer_at(self, address: int) -> str:
        """The name of the memory, or that it is temporary."""
        known = self._buffer(address)
        return _TEMPORARY if known is None else known[2]

    def label(self, kind: str, stack: Stack) -> str:
        function = "?"
        for _, _, name in stack:
            function = name.rpartition(".")[2]  # a class may move
            if function not in _HELPERS:
                break
        place = f"{kind}@{function}"
        self._counts[place] = self._counts.get(place, 0) + 1
        if not kind.startswith(("host ", "observe ")):
            self._on_first.setdefault(place, set()).add(self._stream_of() == self._first)
        label = f"{place}#{self._counts[place]}"
        self.turns[label] = self.turn
        return label

    def kind(self, kind: str, reads: Ranges, writes: Ranges) -> str:
        if kind.startswith(_KERNEL):
            self._note(kind.removeprefix(_KERNEL), reads, writes)
        if kind not in ("d2h", "h2d", "h2h"):
            return kind
        ranges = (reads if kind == "h2d" else writes) or writes or reads
        name = self.buffer_at(ranges[0][0]) if ranges else _TEMPORARY
        if name != _TEMPORARY:
            self._note(f"{kind} {name}", reads, writes)
        return f"{kind} {name}"

    def access_kind(self, kind: str, reads: Ranges, writes: Ranges) -> str:
        return f"{kind} {self.buffer_at((writes or reads)[0][0])}"

    def stack(self, stack: Stack) -> Stack:
        known = self._stacks.get(id(stack))
        if known is None:  # the walk hands out the same tuple again, and keeps it
            own = tuple(place for place in stack if not place[0].startswith(self._ours))
            known = self._stacks[id(stack)] = (stack, own)
        return known[1]

    def work(self, kind: str, run: Work) -> Work:
        return run if self._heard is None else self._heard.following(kind, run)

    def reach(
        self,
        queue: WorkQueue,
        label: str,
        reads: Ranges,
        writes: Ranges,
        is_behind: Callable[[], bool],
    ) -> None:
        self._was_pending = queue.has_pending()
        if self._on_gap is None:
            return
        in_conflict = self._conflicting(queue, reads, writes)
        if any(self.gaps[held] for held in in_conflict) and not is_behind():
            self._on_gap(label)

    def reached(self, queue: WorkQueue, label: str, reads: Ranges, writes: Ranges) -> None:
        if self._was_pending and not queue.keeps(label):  # else it is behind what is held
            for held in self._conflicting(queue, reads, writes):
                self.gaps[held].append(label)
        if queue.has_pending() and queue.is_held(label):
            self._held[label] = (reads, writes)
            self.gaps[label] = []

    def touches(self, reads: Ranges, writes: Ranges) -> None:
        if self._heard is not None:
            self._heard.touches(reads, writes)

    def learns(self, value: object) -> None:
        if self._heard is not None:
            self._heard.learns(value)

    def _note(self, name: str, reads: Ranges, writes: Ranges) -> None:
        footprint = self._in_tensors(reads), self._in_tensors(writes)
        self._footprints.setdefault(name, []).append(footprint)

    def _in_tensors(self, ranges: Ranges) -> list[str]:
        """Which bytes of tensors those are. Of memory that has no name and was not asked for in the
        run only the size is told: what lies there before it is of no matter.
        """
        places: dict[int, list[tuple[int, int]]] = {}
        untold = 0
        for low, end in ranges:
            while low < end:
                base, stop, *_ = self._buffer(low) or self._tensor_of(low) or (0, 0)
                high = min(end, stop) if stop else end
                if stop:
                    _extend(places.setdefault(base, []), low - base, high - base)
                else:
                    untold += high - low
                low = high
        told = sorted(map(_places_text, places.values()))
        return [*told, f"{untold} elsewhere"] if untold else told

    def _buffer(self, address: int) -> tuple[int, int, str] | None:
        """[first byte, one past the last) of memory that has a name, and the name."""
        index = bisect_right(self._lows, address) - 1
        if index < 0:
            return None
        end, name = self._named[index]
        return (self._lows[index], end, name) if address < end else None

    def _conflicting(self, queue: WorkQueue, reads: Ranges, writes: Ranges) -> list[str]:
        """The held operations that an access to these bytes is in conflict with."""
        found = []
        for held, (held_reads, held_writes) in self._held.items():
            is_conflict = _overlap(held_writes, (*reads, *writes)) or _overlap(held_reads, writes)
            if is_conflict and queue.keeps(held):
                found.append(held)
        return found


def _extend(places: list[tuple[int, int]], low: int, high: int) -> None:
    """[low, high) lies behind them, or goes on where the last one ends."""
    if places and places[-1][1] == low:
        low = places.pop()[0]
    places.append((low, high))


def _places_text(places: list[tuple[int, int]]) -> str:
    """Of one tensor. Where there are several, a digest tells them apart from as many others."""
    text = f"{places[0][0]}..{places[-1][1]}"
    if len(places) == 1:
        return text
    size = sum(high - low for low, high in places)
    digest = blake2b(repr(places).encode(), digest_size=4).hexdigest()
    return f"{text}: {size} in {len(places)} places, {digest}"


def _overlap(some: Ranges, others: Ranges) -> bool:
    return any(low < end and first < high for low, high in some for first, end in others)
