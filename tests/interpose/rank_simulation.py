"""Programs of two ranks without processes: the queue of each rank and what matches them, with hosts
and messages in whatever order is drawn.
"""

from __future__ import annotations

import random
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from rank_orders import COMMS, RANKS, STREAMS, Program, Programs, Step, Word

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
    started: dict[int, Clock] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.clocks = Clocks(1 + STREAMS + COMMS)
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
        lane, group = 1 + step.stream, 1 + STREAMS + step.comm
        match step.word:
            case Word.CALL:
                self.put(step, lane)
            case Word.START:
                self.clocks.learn(group, self.clocks.known(lane))
                self.put(step, group)
                self.started[step.comm] = tuple(self.clocks.known(group))
            case Word.JOIN:
                self.clocks.learn(lane, self.started.get(step.comm, ()))
            case Word.WAIT:
                self.clocks.learn(0, self.clocks.known(lane))
                self.queue.force(list(self.clocks.known(0)))
            case _:
                self.clocks.learn(lane, self.clocks.known(1 + (1 - step.stream)))

    def put(self, step: Step, lane: int) -> None:
        number, _ = self.clocks.issue(0, lane)
        kind = CollectiveKind.ALL_REDUCE if step.root is None else CollectiveKind.BROADCAST
        operation = GroupOperation(
            kind=kind, send=0, receive=0, count=0, dtype=7, reduction=0, root=step.root or 0,
            comm=step.comm, rank=self.rank, ranks=RANKS,
        )  # fmt: skip
        work = GroupWork(len(self.works), (operation,))
        self.works.append(work)
        clock = list(self.clocks.known(lane))
        self.queue.submit(f"{kind.word}@program.py:main#{number}", lane, number, clock, work)

    def hear(self, message: Any) -> None:
        match message:
            case WantMessage():
                self.queue.advance(self.works[message.node])
            case ResultMessage():
                self.works[message.node].result = message.data
                self.queue.advance()
        if not isinstance(message, DismissMessage):
            self.tell(DoneMessage())


def found_in(programs: Programs, draw: random.Random) -> set[FindingKind]:
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
