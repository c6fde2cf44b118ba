"""Random programs of two ranks, and all orders in which their hosts and devices can go on.

This knows nothing of clocks, meetings or messages. Each stream is a queue of what its host has
put there, and each state that hosts and devices can reach is visited.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import combinations

RANKS, COMMS, STREAMS, BUFFERS = 2, 2, 2, 2


class Word(StrEnum):
    """What a host does. CALL, START: a collective on a stream of the program, or on that of its
    communicator, behind the program's; JOIN: a stream waits for the last that was started; EDGE: a
    stream waits for the other; WAIT: the host waits for a stream
    """

    CALL = "call"
    START = "start"
    JOIN = "join"
    EDGE = "edge"
    WAIT = "wait"
    READ = "read"
    WRITE = "write"


@dataclass(frozen=True)
class Step:
    """One statement of a rank. root: who gives to both; None: both give to both (an all-reduce)"""

    word: Word
    comm: int = 0
    stream: int = 0
    buffer: int = 0
    root: int | None = None

    @property
    def is_collective(self) -> bool:
        return self.word in (Word.CALL, Word.START)


Program = tuple[Step, ...]  # of one rank
Programs = tuple[Program, Program]


@dataclass(frozen=True)
class Item:
    """What stands in a stream: the operation of a statement, or a wait until so many items of
    another stream are done
    """

    step: int = -1
    other: int = -1
    count: int = 0


@dataclass
class Rank:
    """A program as what its host puts into streams. lengths: of the streams, before each statement

    until: by wait of the host, its stream and how many items of it; numbers: by collective, its
    communicator and which of its operations it is
    """

    program: Program
    streams: list[list[Item]] = field(default_factory=lambda: [[] for _ in range(STREAMS + COMMS)])
    lengths: list[tuple[int, ...]] = field(default_factory=list)
    until: dict[int, tuple[int, int]] = field(default_factory=dict)
    numbers: dict[int, tuple[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        started: dict[int, int] = {}
        issued = [0] * COMMS
        for at, step in enumerate(self.program):
            self.lengths.append(tuple(map(len, self.streams)))
            own, group = self.streams[step.stream], self.streams[STREAMS + step.comm]
            if step.is_collective:
                issued[step.comm] += 1
                self.numbers[at] = (step.comm, issued[step.comm])
            match step.word:
                case Word.START:
                    group += [Item(other=step.stream, count=len(own)), Item(at)]
                    started[step.comm] = len(group)
                case Word.JOIN:
                    own.append(Item(other=STREAMS + step.comm, count=started.get(step.comm, 0)))
                case Word.EDGE:
                    other = 1 - step.stream
                    own.append(Item(other=other, count=len(self.streams[other])))
                case Word.WAIT:
                    self.until[at] = (step.stream, len(own))
                case _:
                    own.append(Item(at))
        self.lengths.append(tuple(map(len, self.streams)))


@dataclass(frozen=True)
class Place:
    """How far a rank is. at: of its program; done: items of each stream; begun: streams whose next
    item is a collective that has begun and is not over
    """

    at: int
    done: tuple[int, ...]
    begun: frozenset[int]


State = tuple[Place, Place]
Pair = tuple[int, int, int]  # a rank, and two of its statements in the order of its program


class Orders:
    """All orders of a program. meets: whether a collective that only gives waits for who gets, as
    NCCL may let it, or goes on
    """

    def __init__(self, programs: Programs, *, meets: bool) -> None:
        self._ranks = [Rank(program) for program in programs]
        self._meets = meets
        self.last: set[bool] = (
            set()
        )  # of each state in which nothing can go on: whether all is done
        self.not_behind: set[Pair] = set()  # second may begin before the first is over
        self.not_before: set[Pair] = set()  # first may begin before the second is over
        self._visit()

    @property
    def is_stuck(self) -> bool:
        """Raises AssertionError where it depends on the order whether the end is reached."""
        (is_over,) = self.last
        return not is_over

    @property
    def unordered(self) -> set[Pair]:
        """The conflicts: accesses to one buffer, at least one a write, that overlap or come in
        either order.
        """
        return self.not_behind & self.not_before

    def _visit(self) -> None:
        start = Place(0, (0,) * (STREAMS + COMMS), frozenset())
        seen: set[State] = {(self._settled(0, start), self._settled(1, start))}
        left = list(seen)
        while left:
            state = left.pop()
            following = list(self._following(state))
            if not following:
                self.last.add(self._is_over(state))
            for one in following:
                if one not in seen:
                    seen.add(one)
                    left.append(one)

    def _is_over(self, state: State) -> bool:
        return all(
            place.at == len(rank.program) and place.done == rank.lengths[-1]
            for place, rank in zip(state, self._ranks, strict=True)
        )

    def _following(self, state: State) -> Iterator[State]:
        for number in range(RANKS):
            for moved in self._devices(state, number):
                settled = self._settled(number, moved)
                yield (settled, state[1]) if number == 0 else (state[0], settled)

    def _settled(self, number: int, place: Place) -> Place:
        """Behind all that touches nothing and keeps nobody back: what the host can issue, and waits
        of streams that are over. To do these later makes no other order of accesses.
        """
        rank = self._ranks[number]
        while True:
            following = self._host(rank, place) or self._waited(rank, place)
            if following is None:
                return place
            place = following

    @staticmethod
    def _host(rank: Rank, place: Place) -> Place | None:
        if place.at == len(rank.program):
            return None
        stream, count = rank.until.get(place.at, (0, 0))
        return Place(place.at + 1, place.done, place.begun) if place.done[stream] >= count else None

    @staticmethod
    def _waited(rank: Rank, place: Place) -> Place | None:
        for stream, length in enumerate(rank.lengths[place.at]):
            if place.done[stream] < length:
                item = rank.streams[stream][place.done[stream]]
                if item.step < 0 and place.done[item.other] >= item.count:
                    return _over(place, stream)
        return None

    def _devices(self, state: State, number: int) -> Iterator[Place]:
        """What each stream of a rank can do next."""
        rank, place = self._ranks[number], state[number]
        for stream, items in enumerate(rank.streams):
            if place.done[stream] == rank.lengths[place.at][stream]:
                continue
            item = items[place.done[stream]]
            if item.step < 0:
                continue
            if not rank.program[item.step].is_collective:
                self._begins(number, place, item.step)
                yield _over(place, stream)
            elif stream not in place.begun:
                self._begins(number, place, item.step)
                yield Place(place.at, place.done, place.begun | {stream})
            elif self._can_end(state, number, item.step):
                yield _over(place, stream)

    def _can_end(self, state: State, number: int, step: int) -> bool:
        other = self._ranks[1 - number]
        key, root = self._ranks[number].numbers[step], self._ranks[number].program[step].root
        if root == number and not self._meets:
            return True
        for at, known in other.numbers.items():
            if known == key:
                is_same = other.program[at].root == root
                return is_same and self._has_begun(1 - number, state[1 - number], at)
        return False

    def _has_begun(self, number: int, place: Place, step: int) -> bool:
        for stream, items in enumerate(self._ranks[number].streams):
            for position, item in enumerate(items):
                if item.step == step:
                    is_next = position == place.done[stream] and stream in place.begun
                    return position < place.done[stream] or is_next
        return False

    def _begins(self, number: int, place: Place, step: int) -> None:
        """Notes which other accesses to its buffer are not over when this one begins."""
        rank = self._ranks[number]
        for first, second in conflicting(rank.program, number):
            if step in (first, second):
                other = second if step == first else first
                if not self._has_ended(rank, place, other):
                    found = self.not_before if step == first else self.not_behind
                    found.add((number, first, second))

    @staticmethod
    def _has_ended(rank: Rank, place: Place, step: int) -> bool:
        return any(
            item.step == step
            for stream, items in enumerate(rank.streams)
            for item in items[: place.done[stream]]
        )


def _over(place: Place, stream: int) -> Place:
    done = tuple(count + (at == stream) for at, count in enumerate(place.done))
    return Place(place.at, done, place.begun - {stream})


def conflicting(program: Program, number: int) -> list[tuple[int, int]]:
    """The pairs of statements of a rank that touch the same buffer, at least one writing."""
    touching = [
        (at, step.buffer, step.word is not Word.READ and step.root != number)
        for at, step in enumerate(program)
        if step.is_collective or step.word in (Word.READ, Word.WRITE)
    ]
    return [
        (first, second)
        for (first, one, writes), (second, other, also) in combinations(touching, 2)
        if one == other and (writes or also)
    ]


# ---- draws


def drawn_programs(draw: random.Random) -> Programs:
    """Of which about half come to their end: correct ones of which one step is gone or comes a step
    later, or two that know nothing of each other.
    """
    if draw.random() < 0.3:
        return _drawn_program(draw), _drawn_program(draw)
    ranks = list(correct_programs(draw))
    rank = draw.randrange(RANKS)
    steps = list(ranks[rank])
    at = draw.randrange(len(steps))
    step = steps.pop(at)
    if draw.random() < 0.6:
        steps.insert(at + 1, step)
    ranks[rank] = tuple(steps)
    return ranks[0], ranks[1]


def _drawn_program(draw: random.Random) -> Program:
    """A few steps, of which half are collectives."""
    return tuple(
        _drawn_collective(draw) if draw.random() < 0.5 else _drawn_edge(draw)
        for _ in range(draw.randint(1, 4))
    )


def correct_programs(draw: random.Random) -> Programs:
    """Both issue the same collectives in one order; all else is each rank's own."""
    kinds = [_drawn_collective(draw) for _ in range(draw.randint(1, 3))]
    made = []
    for _ in range(RANKS):
        steps = []
        for kind in kinds:
            word, stream = draw.choice((Word.CALL, Word.START)), draw.randrange(STREAMS)
            buffer = draw.randrange(BUFFERS)
            steps.append(Step(word, kind.comm, stream, buffer, kind.root))
            if draw.random() < 0.5:
                steps.append(_drawn_edge(draw))
        made.append(tuple(steps))
    return made[0], made[1]


def racing_programs(draw: random.Random) -> Programs:
    """Both issue the same collectives, some in opposite orders, among accesses to their buffers;
    no order of them is stuck.
    """
    while True:
        programs = correct_programs(draw)
        made = [_among_accesses(draw, program) for program in programs]
        if not Orders((made[0], made[1]), meets=True).is_stuck:
            return made[0], made[1]


def _among_accesses(draw: random.Random, program: Program) -> Program:
    steps = list(program)
    for at in range(len(steps) - 1):
        if steps[at].comm != steps[at + 1].comm and draw.random() < 0.3:
            steps[at : at + 2] = steps[at + 1], steps[at]
    for _ in range(draw.randint(1, 3)):
        word = draw.choice((Word.READ, Word.WRITE))
        touch = Step(word, stream=draw.randrange(STREAMS), buffer=draw.randrange(BUFFERS))
        steps.insert(draw.randint(0, len(steps)), touch)
    return tuple(steps)


def _drawn_collective(draw: random.Random) -> Step:
    return Step(
        draw.choice((Word.CALL, Word.START)),
        draw.randrange(COMMS),
        draw.randrange(STREAMS),
        draw.randrange(BUFFERS),
        draw.choice((None, None, 0, 1)),
    )


def _drawn_edge(draw: random.Random) -> Step:
    word = draw.choice((Word.WAIT, Word.EDGE, Word.JOIN))
    return Step(word, draw.randrange(COMMS), draw.randrange(STREAMS))
