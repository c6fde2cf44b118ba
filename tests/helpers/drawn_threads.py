"""Small programs of two host threads and up to three streams, and what is true of each: which pairs
of accesses come in both orders, found by going through every interleaving of the threads and every
order in which the streams may run. Nothing of `racegate` is used in it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import msgspec

MAIN, WORKER = 0, 1

Item = tuple[str, int, int]  # on a stream: an access, a marker, or the wait for one; who issued it
Place = tuple[int, int]  # a thread, and the number of its statement
Wait = frozenset[Place]


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """One statement of a thread.

    kind: `upload`, `download`, `kernel`, `write`, `read`: accesses; `record`, `make_wait`, `wait`,
        `synchronize`: of streams and events; `lock`, `unlock`, `put`, `get`, `set`, `await`: of
        threads; `start` and `join`: of the worker
    host, device, stream, event: numbers, -1 where it has none; name: of a lock, queue or flag
    """

    kind: str
    host: int = -1
    device: int = -1
    stream: int = -1
    event: int = -1
    name: int = -1


class Drawn(msgspec.Struct, frozen=True, kw_only=True):
    """A program: the statements of the main thread and of the worker, and one order of both in
    which it can run, as threads.
    """

    threads: tuple[tuple[Statement, ...], tuple[Statement, ...]]
    order: tuple[int, ...]


class Touch(msgspec.Struct, frozen=True):
    """What an access reads and writes: `h0`, `d1` and so on."""

    reads: frozenset[str]
    writes: frozenset[str]

    def conflicts(self, other: Touch) -> bool:
        """Whether one of them writes what the other touches."""
        return bool(
            self.writes & (other.reads | other.writes) or other.writes & (self.reads | self.writes)
        )


def touch_of(statement: Statement) -> Touch | None:
    """None of a statement that touches nothing."""
    host, device = f"h{statement.host}", f"d{statement.device}"
    reads, writes = {
        "upload": ({host}, {device}),
        "download": ({device}, {host}),
        "kernel": ({device}, {device}),
        "write": (set(), {host}),
        "read": ({host}, set()),
    }.get(statement.kind, (set(), set()))
    return Touch(frozenset(reads), frozenset(writes)) if reads or writes else None


def object_of(statement: Statement) -> str:
    """What orders statements of two threads by the order in which they come to it."""
    match statement.kind:
        case "record" | "make_wait" | "wait":
            return f"event {statement.event}"
        case "lock" | "unlock":
            return f"lock {statement.name}"
        case "put" | "get":
            return f"queue {statement.name}"
        case "set" | "await":
            return f"flag {statement.name}"
    return ""


class State(msgspec.Struct, frozen=True, kw_only=True):
    """Where a program stands. at: each thread's next statement; waits: for which markers it waits

    queues: what each stream has not run yet; latest: the last record of each event
    done: accesses and markers that have run; holders: of locks; counts: of queues; flags: set ones
    """

    at: tuple[int, int] = (0, 0)
    waits: tuple[Wait, Wait] = (frozenset(), frozenset())
    queues: tuple[tuple[Item, ...], ...]
    latest: tuple[Place | None, ...] = (None, None)
    done: frozenset[Place] = frozenset()
    holders: tuple[int, ...] = (-1, -1)
    counts: tuple[int, ...] = (0, 0)
    flags: frozenset[int] = frozenset()


class Machine:
    """Goes through what a program may do.

    order: threads, statement by statement: what two threads come to in one order there, they come
    to in no other; None: in any
    """

    def __init__(self, drawn: Drawn, *, streams: int, order: tuple[int, ...] | None) -> None:
        self.threads = drawn.threads
        self.first = State(queues=((),) * streams)
        self._before = {} if order is None else self._precedence(order)

    def _precedence(self, order: tuple[int, ...]) -> dict[Place, Place]:
        """By statement of an object the statement of the other thread that comes before it."""
        at, last, before = [0, 0], {}, {}
        for thread in order:
            place = (thread, at[thread])
            name = object_of(self.threads[thread][at[thread]])
            at[thread] += 1
            if name:
                for other in last.get(name, ()):
                    if other[0] != thread:
                        before[place] = other
                last.setdefault(name, []).append(place)
        return before

    def after(self, state: State) -> Iterator[tuple[State, Place | None]]:
        """All that may happen next, with the access that runs then, if one does."""
        for thread in (MAIN, WORKER):
            yield from self._thread_goes_on(state, thread)
        for stream, queue in enumerate(state.queues):
            if queue and (queue[0][0] != "wait" or queue[0][1:] in state.done):
                yield self._stream_goes_on(state, stream)

    def is_over(self, state: State) -> bool:
        """Whether both threads have come to their ends, and all streams too."""
        ends = all(at == len(own) for at, own in zip(state.at, self.threads, strict=True))
        return ends and not any(state.queues) and not any(state.waits)

    def _stream_goes_on(self, state: State, stream: int) -> tuple[State, Place | None]:
        (kind, *who), *rest = state.queues[stream]
        place = (who[0], who[1])
        queues = _put(state.queues, stream, tuple(rest))
        if kind == "wait":
            return msgspec.structs.replace(state, queues=queues), None
        new = msgspec.structs.replace(state, queues=queues, done=state.done | {place})
        return new, place if kind == "access" else None

    def _thread_goes_on(self, state: State, thread: int) -> Iterator[tuple[State, Place | None]]:
        if state.waits[thread]:
            if state.waits[thread] <= state.done:
                waits = _put(state.waits, thread, frozenset())
                yield msgspec.structs.replace(state, waits=waits), None
            return
        number = state.at[thread]
        place = (thread, number)
        if number == len(self.threads[thread]) or not self._may_start(state, thread):
            return
        before = self._before.get(place)
        if before is not None and state.at[before[0]] <= before[1]:
            return
        statement = self.threads[thread][number]
        moved = msgspec.structs.replace(state, at=_put(state.at, thread, number + 1))
        yield from self._does(moved, thread, place, statement)

    def _may_start(self, state: State, thread: int) -> bool:
        """The worker does nothing before it is started."""
        kinds = [one.kind for one in self.threads[MAIN]]
        return thread == MAIN or state.at[MAIN] > kinds.index("start")

    def _does(
        self, state: State, thread: int, place: Place, statement: Statement
    ) -> Iterator[tuple[State, Place | None]]:
        change = msgspec.structs.replace
        name, kind = statement.name, statement.kind
        match kind:
            case "upload" | "download" | "kernel":
                yield self._given(state, statement.stream, "access", place), None
            case "write" | "read":
                yield change(state, done=state.done | {place}), place
            case "record":
                given = self._given(state, statement.stream, "marker", place)
                yield change(given, latest=_put(state.latest, statement.event, place)), None
            case "make_wait":
                recorded = state.latest[statement.event]
                if recorded is not None:
                    state = self._given(state, statement.stream, "wait", recorded)
                yield state, None
            case "wait":
                recorded = state.latest[statement.event]
                wanted = frozenset() if recorded is None else frozenset((recorded,))
                yield change(state, waits=_put(state.waits, thread, wanted)), None
            case "synchronize":
                given = self._given(state, statement.stream, "marker", place)
                yield change(given, waits=_put(state.waits, thread, frozenset((place,)))), None
            case "join":
                if state.at[WORKER] == len(self.threads[WORKER]) and not state.waits[WORKER]:
                    yield state, None
            case "lock":
                if state.holders[name] < 0:
                    yield change(state, holders=_put(state.holders, name, thread)), None
            case "unlock":
                yield change(state, holders=_put(state.holders, name, -1)), None
            case "put":
                yield change(state, counts=_put(state.counts, name, state.counts[name] + 1)), None
            case "get":
                if state.counts[name]:
                    counts = _put(state.counts, name, state.counts[name] - 1)
                    yield change(state, counts=counts), None
            case "set":
                yield change(state, flags=state.flags | {name}), None
            case "await":
                if name in state.flags:
                    yield state, None
            case "start":
                yield state, None

    def _given(self, state: State, stream: int, kind: str, place: Place) -> State:
        queue = (*state.queues[stream], (kind, *place))
        return msgspec.structs.replace(state, queues=_put(state.queues, stream, queue))


def _put(values: tuple, at: int, value: object) -> tuple:  # type: ignore[type-arg]
    return (*values[:at], value, *values[at + 1 :])


class Truth(msgspec.Struct, frozen=True, kw_only=True):
    """races: whether two accesses that conflict come in both orders; stuck: whether it may come to
    stand where nothing can go on; states: how many were gone through
    """

    races: bool
    stuck: bool
    states: int


def truth_of(drawn: Drawn, *, streams: int, order: tuple[int, ...] | None = None) -> Truth:
    """What every interleaving and every order of the streams says. order: as of `Machine`"""
    machine = Machine(drawn, streams=streams, order=order)
    touched = {
        (thread, number): touch
        for thread, own in enumerate(drawn.threads)
        for number, statement in enumerate(own)
        if (touch := touch_of(statement)) is not None
    }
    seen, left, pairs, stuck = {machine.first}, [machine.first], set(), False
    while left:
        state = left.pop()
        nexts = list(machine.after(state))
        stuck |= not nexts and not machine.is_over(state)
        for new, access in nexts:
            if access is not None:
                pairs |= {(done, access) for done in state.done if done in touched}
            if new not in seen:
                seen.add(new)
                left.append(new)
    races = any(
        (second, first) in pairs and touched[first].conflicts(touched[second])
        for first, second in pairs
    )
    return Truth(races=races, stuck=stuck, states=len(seen))


class Drawer:
    """Draws programs. A seed always gives the same one."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.streams = self._random.randint(1, 3)

    def draw(self) -> Drawn:
        """One that cannot get stuck."""
        while True:
            drawn = self._drawn()
            if drawn is not None and not truth_of(drawn, streams=self.streams).stuck:
                return drawn

    def _drawn(self) -> Drawn | None:
        count = self._random.randint(3, 8)
        mine, its = [], []
        for _ in range(count):
            self._random.choice((mine, its)).append(self._statement())
        main = self._guarded(mine)
        start = self._random.randint(0, min(1, len(main)))
        end = len(main) - self._random.randint(0, min(1, len(main) - start))
        main = [
            *main[:start],
            Statement(kind="start"),
            *main[start:end],
            Statement(kind="join"),
            *main[end:],
        ]
        threads = (tuple(main), tuple(self._guarded(its)))
        threads = self._handed(threads)
        return self._ordered(threads)

    def _statement(self) -> Statement:
        draw = self._random
        kind = draw.choice(
            ["upload", "download", "kernel", "write", "read"] * 3
            + ["record", "make_wait", "wait"] * 2
            + ["synchronize"]
        )
        named = {
            "upload": ("host", "device", "stream"),
            "download": ("host", "device", "stream"),
            "kernel": ("device", "stream"),
            "write": ("host",),
            "read": ("host",),
            "record": ("event", "stream"),
            "make_wait": ("event", "stream"),
            "wait": ("event",),
            "synchronize": ("stream",),
        }[kind]
        most = {"host": 2, "device": 2, "stream": self.streams, "event": 2}
        return Statement(kind=kind, **{name: draw.randrange(most[name]) for name in named})

    def _guarded(self, own: list[Statement]) -> list[Statement]:
        """A stretch of the statements under a lock, in half of the cases."""
        if not own or self._random.random() < 0.5:
            return own
        low = self._random.randrange(len(own))
        high = self._random.randint(low + 1, len(own))
        inside = own[low:high]
        return [
            *own[:low],
            Statement(kind="lock", name=0),
            *inside,
            Statement(kind="unlock", name=0),
            *own[high:],
        ]

    def _handed(
        self, threads: tuple[tuple[Statement, ...], tuple[Statement, ...]]
    ) -> tuple[tuple[Statement, ...], tuple[Statement, ...]]:
        """One thread hands over to the other, or both to each other, by queues or flags."""
        both = [list(own) for own in threads]
        for name in range(self._random.choice((0, 1, 1, 2))):
            giver = self._random.choice((MAIN, WORKER))
            gives, takes = self._random.choice((("put", "get"), ("set", "await")))
            for thread, kind in ((giver, gives), (1 - giver, takes)):
                own = both[thread]
                low = 0 if thread == WORKER else [one.kind for one in own].index("start") + 1
                high = len(own) if thread == WORKER else [one.kind for one in own].index("join")
                own.insert(self._random.randint(low, high), Statement(kind=kind, name=name))
        return tuple(both[MAIN]), tuple(both[WORKER])

    def _ordered(
        self, threads: tuple[tuple[Statement, ...], tuple[Statement, ...]]
    ) -> Drawn | None:
        """With an order in which the threads can run, streams always at once; None: it got stuck"""
        machine = Machine(Drawn(threads=threads, order=()), streams=self.streams, order=None)
        state, order = machine.first, []
        while not machine.is_over(state):
            nexts = [new for new, _ in machine.after(state)]
            quiet = [new for new in nexts if new.at == state.at]
            if not nexts:
                return None
            new = quiet[0] if quiet else self._random.choice(nexts)
            if new.at != state.at:
                order.append(MAIN if new.at[MAIN] != state.at[MAIN] else WORKER)
            state = new
        return Drawn(threads=threads, order=tuple(order))
