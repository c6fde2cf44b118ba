"""Random programs of two ranks, without processes: the queue of each rank and what matches them,
beside every order in which hosts and devices can go on.
"""

from __future__ import annotations

import random
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import pytest

from racegate.history.finding import FindingKind
from racegate.interpose.ranks.group.collectives import GroupOperation
from racegate.interpose.ranks.group.judging import findings_in
from racegate.interpose.ranks.group.kinds import CollectiveKind
from racegate.interpose.ranks.group.matching import Matching
from racegate.interpose.ranks.group.messages import (
    DismissMessage,
    DoneMessage,
    DrainMessage,
    EndMessage,
    IssueMessage,
    JoinMessage,
    NeedMessage,
    PostMessage,
    ResultMessage,
    WaiterKind,
    WaitMessage,
    WantMessage,
)
from racegate.interpose.ranks.group.orders import RankOrder
from racegate.interpose.ranks.queue import GroupWork, RankQueue
from racegate.order.clocks import Clock, Clocks

RANKS, COMMS, STREAMS = 2, 2, 2


@dataclass(frozen=True)
class Step:
    """What a host does. word: issue on a communicator and a stream, wait for a stream, or make one
    stream wait for the other
    """

    word: str
    comm: int = 0
    stream: int = 0


Program = tuple[Step, ...]  # of one rank


class Blocked(Exception):
    """The host waits: it does the same again when it goes on."""


@dataclass
class Simulated:
    """A rank without a process. at: of its program, what comes next"""

    rank: int
    program: Program
    matching: Matching
    at: int = 0
    is_drained: bool = False
    lock: AbstractContextManager[Any] = field(default_factory=nullcontext)
    works: list[GroupWork] = field(default_factory=list)
    numbers: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.clocks = Clocks(1 + STREAMS)
        self.queue = RankQueue((), self, records=True)
        for comm in range(COMMS):
            self.tell(JoinMessage(comm=comm, rank=self.rank, ranks=RANKS, name=""))

    def tell(self, message: Any) -> None:
        self.matching.take(self.rank, message)

    # ---- as a queue asks it

    def issue(self, work: GroupWork, label: str, *, lane: int, number: int, clock: Clock) -> None:
        (operation,) = work.operations
        self.numbers[operation.comm] = self.numbers.get(operation.comm, 0) + 1
        self.tell(
            IssueMessage(
                node=work.number,
                label=label,
                stack=(("program.py", self.at + 1, "main"),),
                operations=work.operations,
                numbers=(self.numbers[operation.comm],),
            )
        )

    def post(self, work: GroupWork) -> None:
        self.tell(PostMessage(node=work.number, data=(b"",)))

    def ask(self, work: GroupWork) -> None:
        self.tell(NeedMessage(node=work.number))

    def await_result(self, work: GroupWork, kind: WaiterKind) -> bool:
        self.tell(WaitMessage(thread=0, node=work.number, kind=kind, stack=(), others=()))
        raise Blocked

    # ---- its host and its device

    @property
    def can_go_on(self) -> bool:
        return not self.is_drained and not self.matching.states[self.rank].waits

    def go_on(self) -> None:
        try:
            if self.at == len(self.program):
                self.queue.end()
                if self.matching.states[self.rank].ended is None:
                    self.tell(EndMessage(how=""))
                self.queue.force_all()
                self.is_drained = True
                self.tell(DrainMessage(order=RankOrder()))
            else:
                self.do(self.program[self.at])
                self.at += 1
        except Blocked:
            pass

    def do(self, step: Step) -> None:
        lane = 1 + step.stream
        match step.word:
            case "issue":
                number, _ = self.clocks.issue(0, lane)
                operation = GroupOperation(
                    kind=CollectiveKind.ALL_REDUCE, send=0, receive=0, count=0, dtype=7,
                    reduction=0, root=0, comm=step.comm, rank=self.rank, ranks=RANKS,
                )  # fmt: skip
                work = GroupWork(len(self.works), (operation,))
                self.works.append(work)
                clock = list(self.clocks.known(lane))
                self.queue.submit(f"all_reduce@program.py:main#{number}", lane, number, clock, work)
            case "wait":
                self.clocks.learn(0, self.clocks.known(lane))
                self.queue.force(list(self.clocks.known(0)))
            case _:
                self.clocks.learn(lane, self.clocks.known(1 + (1 - step.stream)))

    def hear(self, message: Any) -> None:
        match message:
            case WantMessage():
                self.queue.advance(self.works[message.node])
            case ResultMessage():
                self.works[message.node].result = message.data
                self.queue.advance()
        if not isinstance(message, DismissMessage):
            self.tell(DoneMessage())


def found_in(programs: tuple[Program, Program], draw: random.Random) -> set[FindingKind]:
    """What is found when hosts and messages come in the order that is drawn."""
    matching = Matching(RANKS)
    ranks = [Simulated(at, program, matching) for at, program in enumerate(programs)]
    while True:
        going = [rank for rank in ranks if rank.can_go_on]
        if matching.mail and (not going or draw.random() < 0.5):
            of, message = matching.mail.pop(0)
            ranks[of].hear(message)
        elif going:
            draw.choice(going).go_on()
        else:
            assert matching.is_still, "nobody can go on, and it is not seen"
            return {found.kind for found in findings_in(matching)}


def completes(programs: tuple[Program, Program]) -> bool:
    """By all orders: hosts go on when what they wait for is done, and a collective is done when it
    is at the front on both ranks. What can happen stays possible, so one order is as good as all.
    """
    befores = [_befores(program) for program in programs]
    pairs: dict[tuple[int, int], list[int]] = {}
    for program in programs:
        count = [0] * COMMS
        for at, step in enumerate(program):
            if step.word == "issue":
                pairs.setdefault((step.comm, count[step.comm]), []).append(at)
                count[step.comm] += 1
    at, done = [0, 0], [set[int](), set[int]()]
    is_new = True
    while is_new:
        is_new = False
        for rank, program in enumerate(programs):
            while at[rank] < len(program):
                step = program[at[rank]]
                if step.word == "wait" and not befores[rank][at[rank]] <= done[rank]:
                    break
                at[rank] += 1
                is_new = True
        for key, places in pairs.items():
            if len(places) == RANKS and places[0] not in done[0]:
                fronts = [
                    place < at[rank] and befores[rank][place] <= done[rank]
                    for rank, place in enumerate(places)
                ]
                if all(fronts):
                    is_new = True
                    for rank, place in enumerate(places):
                        done[rank].add(place)
            assert key[0] < COMMS
    issued = [{n for n, step in enumerate(program) if step.word == "issue"} for program in programs]
    return all(at[rank] == len(program) for rank, program in enumerate(programs)) and all(
        issued[rank] == done[rank] for rank in range(RANKS)
    )


def _befores(program: Program) -> list[set[int]]:
    """For each step, the collectives that come before it by the rank's own edges."""
    known: list[set[int]] = [set() for _ in range(STREAMS)]
    host: set[int] = set()
    found = []
    for at, step in enumerate(program):
        if step.word == "issue":
            before = known[step.stream] | host
            known[step.stream] = before | {at}
        elif step.word == "wait":
            before = set(known[step.stream]) | host
            host = before
        else:
            known[step.stream] = known[step.stream] | known[1 - step.stream]
            before = set()
        found.append(before)
    return found


def drawn_program(draw: random.Random) -> Program:
    """A few steps, of which half are collectives."""
    words = [draw.choice(("issue", "issue", "wait", "edge")) for _ in range(draw.randint(1, 6))]
    return tuple(Step(word, draw.randrange(COMMS), draw.randrange(STREAMS)) for word in words)


def correct_programs(draw: random.Random) -> tuple[Program, Program]:
    """Both issue the same collectives in one order; all else is each rank's own."""
    comms = [draw.randrange(COMMS) for _ in range(draw.randint(1, 6))]
    made = []
    for _ in range(RANKS):
        steps = []
        for comm in comms:
            steps.append(Step("issue", comm, draw.randrange(STREAMS)))
            if draw.random() < 0.5:
                word = draw.choice(("wait", "edge"))
                steps.append(Step(word, stream=draw.randrange(STREAMS)))
        made.append(tuple(steps))
    return made[0], made[1]


@pytest.mark.parametrize("seed", range(4))
def test_a_program_is_stuck_if_no_order_brings_it_to_its_end(seed: int) -> None:
    draw, stuck = random.Random(seed), 0
    for _ in range(100):
        programs = (drawn_program(draw), drawn_program(draw))
        kinds = found_in(programs, draw)
        is_found = bool(kinds & {FindingKind.DEADLOCK, FindingKind.MISMATCH})
        assert is_found == (not completes(programs)), programs
        stuck += is_found
    assert 20 < stuck < 100


def test_what_is_found_does_not_depend_on_who_is_faster() -> None:
    draw = random.Random(7)
    for _ in range(60):
        programs = (drawn_program(draw), drawn_program(draw))
        found = [found_in(programs, random.Random(seed)) for seed in range(4)]
        assert found[1:] == found[:-1], programs


def test_a_correct_program_is_never_stuck() -> None:
    draw = random.Random(1)
    for _ in range(1000):
        programs = correct_programs(draw)
        assert found_in(programs, draw) == set(), programs
        assert completes(programs)
