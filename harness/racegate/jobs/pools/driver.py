"""The driver: hands tasks to workers elsewhere, hears what they say, and what becomes of a worker
that is gone. How a worker is started and reached is a `Transport`'s business.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Generic, TypeAlias, TypeVar, cast

import msgspec

from racegate.history.breakage import Breakage, Caught
from racegate.jobs.pools.pool import (
    ChoosyShare,
    Done,
    Ended,
    Events,
    Failed,
    HandedBack,
    Lost,
    MakeWorker,
    RefusedError,
    SetAside,
    Shares,
    Started,
    Task,
    Tick,
    broke,
    place_here,
)
from racegate.jobs.pools.returned import Numbered, ReturnedTasks, WorkerLoss
from racegate.jobs.pools.transport import Handle, Transport
from racegate.scenario.errors import BadInputError
from racegate.scenario.untrusted.signals import stops_later

T = TypeVar("T")
R = TypeVar("R")
L = TypeVar("L", bound=Handle)

# How often a driver hears something, if only that nothing has happened.
TICK_S = 0.25
# For a worker's start, which is no task.
START_WITHIN_S = 300.0
# Workers that may be lost at their start, or at their end, one after the other: by chance.
LOST_IN_A_ROW_MAX = 4
# How long a job without workers waits for room for one.
ROOM_WITHIN_S = 60.0


class GoneError(Exception):
    """From a handle: its worker is gone; says how it went."""


@dataclass(frozen=True, slots=True)
class Ready:
    """From a worker: it is made. place: where"""

    place: str = field(default_factory=place_here)


@dataclass(frozen=True, slots=True)
class Refused:
    """From a worker: bad input, in its words (an error itself need not survive pickling)."""

    reason: str


@dataclass(frozen=True, slots=True)
class Broke:
    """From a worker: an error of the harness at its task, its start or its end."""

    breakage: Breakage


class _At(Enum):
    START = auto()
    TASK = auto()
    REST = auto()
    END = auto()


@dataclass(slots=True)
class _Member(Generic[T, L]):
    """A worker as its driver sees it. task, task_number: what it does, while it does one; at rest
    while another does one alone; signs: of life, when it was last looked at
    """

    number: int
    share: Iterator[Task[T]]
    handle: L
    at: _At = _At.START
    task: Task[T] | None = None
    task_number: int = 0
    since: float = math.inf
    signs: int = 0

    def has_given_signs(self) -> bool:
        """Whether it has since it was last asked for: then its time begins anew."""
        before, self.signs = self.signs, self.handle.signs()
        if self.signs > before:
            self.since = _now()
        return self.signs > before

    @property
    def doing(self) -> str:
        if self.task is not None:
            return self.task.name
        return "its end" if self.at is _At.END else "its start"

    def takes(self, task: Task[T]) -> bool:
        """Whether it does what another one was doing."""
        return not isinstance(self.share, ChoosyShare) or self.share.takes(task)

    def lost(self, why: str) -> Lost:
        command = "" if self.task is None else self.task.command
        return Lost(worker=self.number, doing=self.doing, why=why, command=command)


# The place of a worker that is gone: its number, and its tasks.
_Vacancy: TypeAlias = tuple[int, Iterator[Task[T]]]


class DrivenPool(Generic[L]):
    """Workers behind handles.

    silent_s: a worker that is at one task for longer, without a sign of life, is lost; None is no
        bound
    losses_max: a task that took so many workers with it is not handed out again. At 1 its worker is
    lost and its share with it, as tasks that are pinned to workers need it; above, another worker
    takes its place, where there is room for one, and the task is given so many more while the
    others rest: a worker may be lost by what others do, or by what is done to its node
    """

    def __init__(
        self, transport: Transport[L], *, silent_s: float | None = None, losses_max: int = 1
    ) -> None:
        self._transport = transport
        self._silent_s = math.inf if silent_s is None else silent_s
        self._losses_max = losses_max

    def run(self, make: MakeWorker[T, R], shares: Shares[T]) -> Events[R]:
        run = _Run(self._transport, make, silent_s=self._silent_s, losses_max=self._losses_max)
        try:
            for number, share in enumerate(shares):
                with stops_later():
                    run.start(number, share)
            yield from run.events()
        finally:
            run.close()


class _Run(Generic[T, R, L]):
    """One run of a pool. handed: tasks so far"""

    def __init__(
        self,
        transport: Transport[L],
        make: MakeWorker[T, R],
        *,
        silent_s: float,
        losses_max: int,
    ) -> None:
        self._transport = transport
        self._make = make
        self._silent_s = silent_s
        self._losses_max = losses_max
        self._members: list[_Member[T, L]] = []
        self._handed = 0
        self._returned: ReturnedTasks[T] = ReturnedTasks(losses_max)
        self._alone: _Member[T, L] | None = None
        self._vacant: list[_Vacancy[T]] = []
        self._ended: list[Iterator[Task[T]]] = []
        self._heard_at = _now()
        self._lost_in_a_row: Counter[_At] = Counter()

    def start(self, number: int, share: Iterator[Task[T]]) -> None:
        """One more worker."""
        handle = self._transport.open(self._make, number)
        self._members.append(_Member(number=number, share=share, handle=handle, since=_now()))

    def events(self) -> Events[R]:
        """Until no worker is left, and none is needed."""
        while self._members or self._is_waited_for():
            self._fill()
            self._try_suspects()
            ready = self._wait()
            for member in [member for member in self._members if member.handle in ready]:
                yield from self._heard(member)
            for member in list(self._members):
                silent_s = self._silent_s
                if member.at is _At.START:
                    silent_s = max(silent_s, START_WITHIN_S)
                if _now() - member.since > silent_s and not member.has_given_signs():
                    why = f"has said nothing for {silent_s:g} s"
                    yield from self._gone(member, why, WorkerLoss.SILENT)
            if not ready:
                yield Tick()
        for number, task in (*self._returned.back, *self._returned.suspects):
            error = "a worker was lost with it, and there was room for no other"
            lost = Breakage(at=task.name, error=error, command=task.command)
            yield Failed(worker=0, number=number, name=task.name, breakage=lost)
        # Else a job would seem to be whole of which tasks may be left.
        why = "is gone, and there was room for no other"
        left = [number for number, share in self._vacant if not self._is_at_end(share)]
        yield from (Lost(worker=number, doing="its start", why=why) for number in left)

    def _wait(self) -> Sequence[L]:
        busy = [member.handle for member in self._members if member.at is not _At.REST]
        if busy:
            return self._transport.wait(busy, TICK_S)
        threading.Event().wait(TICK_S)
        return []

    def _needed(self) -> list[_Vacancy[T]]:
        """Vacant places that are worth filling: something was handed back, or nobody has come to
        the end of their tasks.
        """
        return [place for place in self._vacant if self._returned or not self._is_at_end(place[1])]

    def _is_at_end(self, share: object) -> bool:
        return any(share is ended for ended in self._ended)

    def _is_waited_for(self) -> bool:
        return bool(self._needed()) and _now() - self._heard_at < ROOM_WITHIN_S

    def _fill(self) -> None:
        """A worker for each place that is worth filling, as far as there is room."""
        for place in self._needed():
            if not self._transport.has_room():
                return
            self._vacant.remove(place)
            self.start(*place)

    def close(self) -> None:
        """Ends what still runs."""
        for member in self._members:
            member.handle.kill()
        for member in self._members:
            member.handle.close()
        self._transport.close()

    def _heard(self, member: _Member[T, L]) -> Events[R]:
        """What a member says, or that it is gone; then its next task. Raises RefusedError."""
        try:
            said = member.handle.hear()
        except GoneError as error:
            yield from self._gone(member, str(error), WorkerLoss.GONE)
            return
        member.since = math.inf
        self._heard_at = _now()
        if isinstance(said, Refused):
            raise RefusedError(said.reason)
        if member.at is _At.START and isinstance(said, Ready):
            self._lost_in_a_row[_At.START] = 0
            yield Started(worker=member.number, place=said.place)
            self._hand_out(member)
            return
        event = _event_of(member, cast("R | Broke", said))
        # First the event: what it says may decide what there is to do next.
        yield event
        if isinstance(event, Done | Failed):
            self._alone = None if self._alone is member else self._alone
            self._hand_out(member)
        else:
            if isinstance(event, Ended):
                self._ended.append(member.share)
            self._lost_in_a_row[_At.END] = 0
            self._drop(member)

    def _hand_out(self, member: _Member[T, L]) -> None:
        """The next task, or that there is none; neither while one is alone or waits to be."""
        is_awaited = any(self._returned.has_suspect(one.takes) for one in self._members)
        if is_awaited or self._alone is not None:
            member.at, member.task, member.since = _At.REST, None, math.inf
        elif (numbered := self._returned.next_back(member.takes)) is not None:
            self._give(member, numbered)
        elif (task := next(member.share, None)) is not None:
            self._handed += 1
            self._give(member, (self._handed - 1, task))
        else:
            member.at, member.task, member.since = _At.END, None, _now()
            member.handle.send(None)

    def _give(self, member: _Member[T, L], numbered: Numbered[T]) -> None:
        member.at, member.since = _At.TASK, _now()
        member.task_number, member.task = numbered
        member.handle.send(member.task)

    def _try_suspects(self) -> None:
        """The next suspect to a worker at rest, once nobody is at a task; after the last one all of
        them go on.
        """
        if any(member.at is _At.TASK for member in self._members):
            return
        for member in [member for member in self._members if member.at is _At.REST]:
            if self._alone is not None:
                return
            if (numbered := self._returned.next_suspect(member.takes)) is not None:
                self._alone = member
                self._give(member, numbered)
            else:
                self._hand_out(member)

    def _gone(self, member: _Member[T, L], why: str, loss: WorkerLoss) -> Events[R]:
        """A worker is lost, and perhaps what it was doing."""
        self._drop(member)
        # From now on there is somebody to wait for, however long the worker had said nothing.
        self._heard_at = _now()
        self._lost_in_a_row[member.at] += 1
        is_by_chance = self._lost_in_a_row[member.at] <= LOST_IN_A_ROW_MAX
        if self._losses_max == 1 or (member.task is None and not is_by_chance):
            yield member.lost(why)
            return
        self._vacant.append((member.number, member.share))
        self._alone = None if self._alone is member else self._alone
        number, task = member.task_number, member.task
        if task is None or self._returned.takes((number, task), loss):
            yield HandedBack(worker=member.number, doing=member.doing, why=why)
            return
        error = f"{self._returned.blame(number)}; the last one {why}"
        poison = Breakage(at=task.name, error=error, command=task.command)
        yield SetAside(
            worker=member.number,
            number=number,
            name=task.name,
            content=task.content,
            breakage=poison,
        )

    def _drop(self, member: _Member[T, L]) -> None:
        self._members.remove(member)
        member.handle.kill()
        member.handle.close()


def _event_of(member: _Member[T, L], said: R | Broke) -> Done[R] | Failed | Ended[R] | Lost:
    task, worker = member.task, member.number
    if isinstance(said, Broke):
        if task is None:
            return member.lost(broke(said.breakage))
        breakage = msgspec.structs.replace(said.breakage, at=task.name, command=task.command)
        return Failed(worker=worker, number=member.task_number, name=task.name, breakage=breakage)
    if task is None:
        return Ended(worker=worker, result=said)
    return Done(worker=worker, number=member.task_number, name=task.name, result=said)


def said_of(work: Callable[[], object]) -> object:
    """In a worker: what comes of its work, or what broke it, as a handle carries it."""
    try:
        with Caught("its work") as caught:
            return work()
    except BadInputError as error:
        return Refused(str(error))
    assert caught.breakage is not None
    return Broke(caught.breakage)


def _now() -> float:
    return time.monotonic()
