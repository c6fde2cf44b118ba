"""A runner with two ring buffers, as an adapter serves it: three edges, two of them for one buffer,
and a boundary and a plant of its own. It is honest, and answers in this process.

A kernel fills one of two slots with the accepted counts of a step, a copy on another stream takes
them to one of three slots on the host, and the host reads those of two steps before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from racegate.history.edge import Edge
from racegate.history.schedule import FORCED, Hold, parse_hold
from racegate.history.trace import HoldOutcome, Owner
from racegate.scenario.spec import Request
from racegate.targets.adapters.answers import end_of
from racegate.targets.adapters.serve import Say
from racegate.targets.adapters.wire import (
    SCHEMA,
    AccessEntry,
    BufferLine,
    DropEdge,
    HelloAnswer,
    HostLine,
    ObservationLine,
    Offer,
    OpLine,
    OwnerLine,
    OwnPlant,
    PlainAnswer,
    PlainQuestion,
    Plant,
    RanAnswer,
    RecordLine,
    RunQuestion,
    StaleValue,
    WaitLine,
    WrongRow,
)

EDGES = tuple(
    Edge(name=name, before=before, after=after, buffers=(buffer,), reason="a count is another's")
    for name, before, after, buffer in (
        ("filled", "the kernel that fills a slot", "the copy of it", "ring"),
        ("drained", "the copy of a slot", "the kernel that fills it again", "ring"),
        ("landed", "the copy of a slot", "the host reading it", "out"),
    )
)
PLANTS: tuple[Plant, ...] = (
    *(DropEdge(edge=edge.name) for edge in EDGES),
    WrongRow(),
    StaleValue(),
    OwnPlant(name="last-token-lost"),
)
DEPTH = 2
_Cell = tuple[int, Owner | None]


def token(request: Request, place: int) -> int:
    return (31 * request.prompt[0] + 7 * place) % 97


class _Device:
    """Operations complete when they are issued, unless a hold or what they wait for keeps them."""

    def __init__(self, say: Say, holds: Sequence[Hold], dropped: str) -> None:
        self._say, self._dropped = say, dropped
        self._until = {hold.op: hold.until for hold in holds}
        self.matched: set[str] = set()
        self.realised: set[str] = set()
        self._queues: dict[str, deque[tuple[str, Callable[[], None]]]] = {}
        self._needs: dict[str, list[str]] = {}
        self._events: dict[str, str] = {}
        self._last: dict[str, str] = {}
        self._waits: dict[str, list[str]] = {}
        self._done: set[str] = set()

    def issue(
        self, name: str, lane: str, accesses: tuple[AccessEntry, ...], effect: Callable[[], None]
    ) -> None:
        self._say(OpLine(name=name, lane=lane, accesses=accesses))
        self.matched |= {name} & self._until.keys()
        self._needs[name] = self._waits.pop(lane, [])
        self._queues.setdefault(lane, deque()).append((name, effect))
        self._last[lane] = name
        self._turn()

    def record(self, event: str, lane: str) -> None:
        self._say(RecordLine(event=event, lane=lane))
        self._events[event] = self._last[lane]

    def wait(self, edge: str, event: str, lane: str = "host") -> None:
        is_dropped = edge == self._dropped
        self._say(WaitLine(edge=edge, event=event, lane=lane, dropped=is_dropped))
        if is_dropped or event not in self._events:
            return
        if lane == "host":
            self._force(self._events[event])
        else:
            self._waits.setdefault(lane, []).append(self._events[event])

    def reach(self, point: str) -> None:
        """Ends the holds until a point, of operations that are still there."""
        for op in [op for op, until in self._until.items() if until == point]:
            if op in self._needs and op not in self._done:
                self.realised.add(op)
            del self._until[op]
        self._turn()

    def drain(self) -> None:
        self._until.clear()
        self._turn()

    def _force(self, op: str) -> None:
        if op in self._done:
            return
        (queue,) = (queue for queue in self._queues.values() if op in dict(queue))
        for name, _ in list(queue):
            for other in self._needs[name]:
                self._force(other)
            if self._until.pop(name, None) == FORCED:
                self.realised.add(name)
            if name == op:
                break
        self._turn()

    def _turn(self) -> None:
        while ready := [
            queue
            for queue in self._queues.values()
            if queue
            and queue[0][0] not in self._until
            and self._done >= set(self._needs[queue[0][0]])
        ]:
            name, effect = ready[0].popleft()
            effect()
            self._done.add(name)
            self.reach(name)


class RingEngine:
    """What is served."""

    def hello(self) -> HelloAnswer:
        return HelloAnswer(
            to=0,
            schema=SCHEMA,
            engine="ring",
            version="1",
            lanes=("compute", "copy"),
            offers=(Offer.PLAIN, Offer.OBSERVATIONS, Offer.HOLDS, Offer.OWNERS),
            boundaries=("taken",),
            edges=EDGES,
            plants=PLANTS,
        )

    def plain(self, question: PlainQuestion) -> PlainAnswer:
        return PlainAnswer(to=0, tokens={r.name: _plain(r) for r in question.scenario.requests})

    def run(self, question: RunQuestion, say: Say) -> RanAnswer:
        run = _Run(question, say)
        steps = run.all_steps()
        delivered = {name: tuple(tokens) for name, tokens in run.delivered.items()}
        if question.plant == OwnPlant(name="last-token-lost"):
            delivered = {name: tokens[:-1] for name, tokens in delivered.items()}
        device = run.device
        return RanAnswer(
            to=0,
            delivered=delivered,
            finished={
                request.name: "unfinished" if run.is_open(request) else "max_tokens"
                for request in question.scenario.requests
            },
            steps=steps,
            counters={"rejections": run.rejections},
            holds=tuple(_outcome(text, device) for text in question.holds),
        )


def _outcome(text: str, device: _Device) -> HoldOutcome:
    op = parse_hold(text).op
    return HoldOutcome(
        hold=text, matched=int(op in device.matched), realised=int(op in device.realised)
    )


def _plain(request: Request) -> tuple[int, ...]:
    tokens = tuple(token(request, place) for place in range(request.max_tokens))
    return tokens[: end_of(request, tokens)]


class _Run:
    def __init__(self, question: RunQuestion, say: Say) -> None:
        plant, self._say = question.plant, say
        self._plant, self._scenario = plant, question.scenario
        dropped = plant.edge if isinstance(plant, DropEdge) else ""
        self.device = _Device(say, [parse_hold(text) for text in question.holds], dropped)
        self.delivered: dict[str, list[int]] = {r.name: [] for r in self._requests}
        self.rejections = 0
        self._place = dict.fromkeys(self.delivered, 0)
        self._sampled: dict[tuple[str, int], list[int]] = {}
        self._ring: dict[int, _Cell] = {}
        self._out: dict[int, _Cell] = {}
        self._previous: dict[str, _Cell] = {}

    @property
    def _requests(self) -> tuple[Request, ...]:
        return self._scenario.requests

    def all_steps(self) -> int:
        """How many there were."""
        say, rows = self._say, len(self._requests)
        say(BufferLine(name="ring", rows=DEPTH * rows))
        say(BufferLine(name="out", rows=(DEPTH + 1) * rows))
        launched: list[list[int]] = []
        while any(map(self.is_open, self._requests)) or any(launched[-DEPTH:]):
            step = len(launched)
            if step == self._scenario.steps_max:
                break  # a copy that nothing waits for was held for ever
            launched.append(self._launch(step))
            if step >= DEPTH:
                self._take(step, launched[step - DEPTH])
            counts = {name: len(tokens) for name, tokens in self.delivered.items()}
            say(ObservationLine(step=step, boundary="taken", values={"delivered": counts}))
        self.device.drain()
        return len(launched)

    def is_open(self, request: Request) -> bool:
        return len(self.delivered[request.name]) < request.max_tokens

    def _launch(self, step: int) -> list[int]:
        """Fills a slot, and copies it. Returns the rows of the requests that it is for."""
        device, count = self.device, len(self._requests)
        live = [r for r, q in enumerate(self._requests) if q.arrive <= step and self.is_open(q)]
        if not live:
            return live
        ring, out = step % DEPTH * count, step % (DEPTH + 1) * count
        cells = {ring + row: self._counted(self._requests[row], step) for row in live}
        ring_rows, out_rows = tuple(cells), tuple(out + row for row in live)
        device.wait("drained", f"drained{ring}", "compute")
        writes = (AccessEntry(buffer="ring", rows=ring_rows, write=True),)
        device.issue(f"kernel:fill@{step}", "compute", writes, lambda: self._ring.update(cells))
        device.record(f"filled{ring}", "compute")
        device.wait("filled", f"filled{ring}", "copy")
        copies = (
            AccessEntry(buffer="ring", rows=ring_rows),
            AccessEntry(buffer="out", rows=out_rows, write=True),
        )

        def copied() -> None:
            nobody: _Cell = (0, None)
            self._out.update({out + r: self._ring.get(ring + r, nobody) for r in live})

        device.issue(f"d2h:out@{step}", "copy", copies, copied)
        device.record(f"drained{ring}", "copy")
        device.record(f"landed{out}", "copy")
        return live

    def _counted(self, request: Request, step: int) -> _Cell:
        name, first = request.name, self._place[request.name]
        count = request.accepts[step % len(request.accepts)]
        self.rejections += count < max(request.accepts)
        self._place[name] = first + count
        self._sampled[name, step] = [token(request, first + n) for n in range(count)] + [-1] * 8
        return count, (name, step)

    def _take(self, step: int, rows: Sequence[int]) -> None:
        """The host learns what the step two before accepted."""
        launched = step - DEPTH
        out = launched % (DEPTH + 1) * len(self._requests)
        self.device.wait("landed", f"landed{out}")
        for row in rows:
            request = self._requests[row]
            read = out + (rows[0] if isinstance(self._plant, WrongRow) else row)
            count, owner = cell = self._out.get(read, (0, None))
            if isinstance(self._plant, StaleValue):
                count, owner = self._previous.get(request.name, cell)
                self._previous[request.name] = cell
            name = f"host:take@{step}"
            self._say(HostLine(name=name, accesses=(AccessEntry(buffer="out", rows=(read,)),)))
            meant = (request.name, launched)
            self._say(OwnerLine(name=name, buffer="out", row=read, meant=meant, found=owner))
            tokens = self._sampled[request.name, launched][:count]
            held = self.delivered[request.name]
            held += tokens[: request.max_tokens - len(held)]
        self.device.reach(f"host:take@{step}")
