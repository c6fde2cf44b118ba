"""What all ranks of a run do together: who is told what, and when nobody can go on.

It sees no process and no clock: messages of ranks go in, messages to ranks come out. A rank that
waits blocks nobody else: the device of another comes to what is waited for by itself. So the run
stands still only if no host can do anything, which is certain when it is seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from racegate.interpose.ranks.group.meetings import GroupNode, Meetings, split_number
from racegate.interpose.ranks.group.messages import (
    DismissMessage,
    DoneMessage,
    Down,
    DrainMessage,
    EndMessage,
    IssueMessage,
    JoinAnswer,
    JoinMessage,
    NeedMessage,
    NotReadyAnswer,
    PostMessage,
    ResultMessage,
    SplitAnswer,
    SplitMessage,
    StandMessage,
    ThreadPlace,
    Up,
    WaiterKind,
    WaitMessage,
    WantMessage,
    WhereQuery,
)
from racegate.interpose.ranks.group.orders import RankOrder

QUERIES_MAX = 200  # answered "not ready" while nobody does anything else: a loop that never ends
Wait = WaitMessage | SplitMessage | JoinMessage
Mail = list[tuple[int, Down]]


@dataclass(slots=True)
class RankState:
    """How far a rank is. waits: of its threads, by number; others: of its threads those that may do
    something; unanswered: how much it was told and has not done; ended: how, if it has; order: what
    it says at its end; is_gone: its process is no more; standing: where its threads stood when
    somebody asked; is_member: it has a communicator, or is known to be a rank; is_kept: its process
    stays until all ranks have ended
    """

    waits: dict[int, Wait] = field(default_factory=dict)
    others: tuple[int, ...] = ()
    unanswered: int = 0
    queries: int = 0
    ended: str | None = None
    order: RankOrder | None = None
    is_gone: bool = False
    standing: dict[int, ThreadPlace] = field(default_factory=dict)
    is_member: bool = True
    is_kept: bool = True

    @property
    def places(self) -> list[ThreadPlace]:
        """Where its threads stand: those that wait, and the others when somebody asked."""
        waits = [ThreadPlace(stack=wait.stack, is_in_group=True) for wait in self.waits.values()]
        return [*waits, *self.standing.values()]

    @property
    def is_still(self) -> bool:
        """Whether its host can do nothing by itself: it is done, or all of its threads wait."""
        is_waiting = bool(self.waits) and not self.others
        return not self.unanswered and (self.is_gone or self.order is not None or is_waiting)


class Matching:
    """All ranks of a run, by number. mail: what is to be told to ranks, in order

    A process that has no communicator yet may be none: its number is below 0.
    """

    def __init__(self, ranks: int) -> None:
        self.states = {rank: RankState() for rank in range(ranks)}
        self.meetings = Meetings()
        self.mail: Mail = []

    def enter(self, number: int) -> None:
        """A process that may become a rank is there."""
        self.states[number] = RankState(is_member=False, is_kept=False)

    def rename(self, number: int, rank: int) -> None:
        """It becomes this rank. It has issued nothing so far."""
        self.states[rank] = self.states.pop(number)
        self.states = dict(sorted(self.states.items()))
        self.mail = [(rank if to == number else to, message) for to, message in self.mail]

    def take(self, rank: int, told: Up) -> None:
        """A rank has said something."""
        state = self.states[rank]
        match told:
            case DoneMessage():
                state.unanswered -= 1
                return
            case JoinMessage():
                state.is_member = True
                self.meetings.join(rank, told)
                self._join(state, told)
            case IssueMessage():
                self._issue(self.meetings.issue(rank, told))
            case PostMessage():
                self._post(self.meetings.nodes[rank, told.node], told.data)
            case NeedMessage():
                self._need(self.meetings.nodes[rank, told.node])
            case WaitMessage():
                node = self.meetings.nodes[rank, told.node]
                if not node.is_answered:  # or its result is on the way, and wakes who waits
                    self._wait(state, told)
                    self._need(node)
            case SplitMessage():
                self._wait(state, told)
                self._split(rank, told)
            case EndMessage():
                state.ended = told.how
            case DrainMessage():
                state.order = told.order
                if not state.is_kept:
                    self.mail.append((rank, DismissMessage()))
            case StandMessage():
                state.standing = told.threads
                state.others = tuple(told.threads)

    def end(self, rank: int, how: str) -> None:
        """The process of a rank is gone. how: in words"""
        state = self.states[rank]
        state.ended = how if state.ended is None else state.ended
        state.is_gone, state.unanswered = True, 0
        state.waits.clear()

    # ---- what follows from it

    def _tell(self, rank: int, message: Down) -> None:
        state = self.states[rank]
        if not state.is_gone:
            state.unanswered += 1
            self.mail.append((rank, message))

    def _wait(self, state: RankState, told: Wait) -> None:
        state.waits[told.thread] = told
        state.others = told.others

    def _issue(self, node: GroupNode) -> None:
        self._forget_queries()
        for meeting in node.meetings:
            if meeting.is_wanted:
                self._want(node)

    def _post(self, node: GroupNode, data: tuple[bytes, ...]) -> None:
        node.post(data)
        for meeting in node.meetings:
            for part in meeting.parts.values():
                self._answer(self.meetings.nodes[part.rank, part.node])

    def _need(self, node: GroupNode) -> None:
        node.need()
        for meeting in node.meetings:
            for part in meeting.parts.values():
                self._want(self.meetings.nodes[part.rank, part.node])
        self._answer(node)

    def _want(self, node: GroupNode) -> None:
        if not node.is_posted:
            self._tell(node.rank, WantMessage(node=node.number))

    def _answer(self, node: GroupNode) -> None:
        if node.is_answered or not node.is_needed or not node.is_ready:
            return
        data, state = node.answer(), self.states[node.rank]
        self._forget_queries()
        for thread, wait in list(state.waits.items()):
            if isinstance(wait, WaitMessage) and wait.node == node.number:
                del state.waits[thread]
        self._tell(node.rank, ResultMessage(node=node.number, data=data))

    def _join(self, state: RankState, told: JoinMessage) -> None:
        """NCCL makes a communicator when all of its ranks have come; each waits for that."""
        if told.thread:
            self._wait(state, told)
        if self.meetings.lacks_members(told.comm):
            return
        shared = self.meetings.shared_gpu(told.comm)
        for rank, other in self.states.items():
            for thread, wait in list(other.waits.items()):
                if isinstance(wait, JoinMessage) and wait.comm == told.comm:
                    del other.waits[thread]
                    self._tell(rank, JoinAnswer(thread=thread, shared=shared))

    def _split(self, rank: int, told: SplitMessage) -> None:
        said = self.meetings.split(rank, told)
        for each, one in said.items():
            alike = [other for other in said.values() if other.colour == one.colour]
            alike.sort(key=lambda other: (other.key, other.rank))
            is_in = one.colour >= 0
            del self.states[each].waits[one.thread]
            answer = SplitAnswer(
                thread=one.thread,
                comm=split_number(one) if is_in else 0,
                rank=alike.index(one),
                ranks=len(alike),
            )
            self._tell(each, answer)

    def _forget_queries(self) -> None:
        for state in self.states.values():
            state.queries = 0

    def ask_where(self) -> None:
        """Nobody has said anything for long: where do those stand who may do something?"""
        for rank, state in self.states.items():
            if not state.is_still:
                self._tell(rank, WhereQuery())

    # ---- when nobody can go on

    @property
    def is_still(self) -> bool:
        """Whether no host can do anything, and all that ranks were told has been done."""
        members = self._members
        is_still = bool(members) and all(state.is_still for state in members)
        return not self.mail and is_still and not self._lacks_members

    @property
    def _members(self) -> list[RankState]:
        return [state for state in self.states.values() if state.is_member]

    @property
    def _lacks_members(self) -> bool:
        """Whether somebody waits in a communicator to which a process may yet come."""
        if all(state.is_member or state.is_gone for state in self.states.values()):
            return False
        waits = [
            (rank, wait) for rank, state in self.states.items() for wait in state.waits.values()
        ]
        waited = {comm for rank, wait in waits for comm in self._comms(rank, wait)}
        return any(map(self.meetings.lacks_members, waited))

    def _comms(self, rank: int, wait: Wait) -> set[int]:
        if not isinstance(wait, WaitMessage):
            return {wait.comm}
        return {meeting.key[0] for meeting in self.meetings.nodes[rank, wait.node].meetings}

    @property
    def is_over(self) -> bool:
        """Whether all ranks have ended."""
        return all(state.ended is not None for state in self._members)

    def go_on(self) -> bool:
        """Of a run that stands still: whether somebody who asks can be told "not ready"."""
        for rank, state in self.states.items():
            for thread, wait in list(state.waits.items()):
                if _asks(wait) and state.queries < QUERIES_MAX:
                    state.queries += 1
                    del state.waits[thread]
                    self._tell(rank, NotReadyAnswer(thread=thread))
                    return True
        return False

    def release(self) -> bool:
        """Of a run in which all scripts are over: whether devices wait for what never comes. They
        are told so.
        """
        ends = [(rank, at) for rank, state in self.states.items() for at in state.waits]
        for rank, thread in ends:
            del self.states[rank].waits[thread]
            self._tell(rank, NotReadyAnswer(thread=thread))
        return bool(ends)

    def dismiss(self) -> None:
        """All ranks have ended: their processes may end too."""
        self.mail += [
            (rank, DismissMessage()) for rank, state in self.states.items() if state.is_kept
        ]

    @property
    def hosts(self) -> Iterator[tuple[int, Wait]]:
        """The threads that wait, by rank; not what the device waits for behind the script's end."""
        for rank, state in self.states.items():
            for wait in state.waits.values():
                if not (isinstance(wait, WaitMessage) and wait.kind is WaiterKind.END):
                    yield rank, wait


def _asks(wait: Wait) -> bool:
    return isinstance(wait, WaitMessage) and wait.kind is WaiterKind.QUERY
