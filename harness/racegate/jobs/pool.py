"""A worker pool: one way to run many tasks, in this process or in several.

Every worker has an iterator of tasks, which is asked for the next one when the worker is free. One
iterator that all workers share hands tasks to whoever is free (`spread`); one for each pins them,
where workers have state. A worker whose iterator ends comes to its end, so a bound in time is a
matter of the iterator. Tasks are numbered as they are handed out, and `in_order` gives what they
yield in this order, whoever did them and whenever they were done.

A worker is made in its process by a function that is pickled, as tasks and results are. No process
outlives the pool: workers leave Ctrl-C to their driver, which ends them, and end by themselves if
the driver is gone.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Generic, Protocol, TypeAlias, TypeVar

import msgspec

from racegate.history.breakage import Breakage, Caught
from racegate.jobs.time_limit import limited_time
from racegate.scenario.errors import BadInputError, BrokenHarnessError
from racegate.scenario.outside.signals import stops_later

T = TypeVar("T")
R = TypeVar("R")
T_contra = TypeVar("T_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)

# How often a driver hears something, if only that nothing has happened.
TICK_S = 0.25


class PoolError(BrokenHarnessError):
    """A worker was lost, and with it what it was doing."""


class RefusedError(BadInputError):
    """What a worker was given cannot be used: the reason that it gave."""


class Worker(Protocol[T_contra, R_co]):
    """Does tasks in a process, one after the other."""

    def work(self, task: T_contra, /) -> R_co:
        """One task."""
        ...

    def end(self) -> R_co | None:
        """After the last task: what is left to say, if anything is."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Task(Generic[T]):
    """name: in words, for progress, and to say what a worker was doing if it is lost
    command: what does the same alone
    """

    name: str
    content: T
    command: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done(Generic[R]):
    """A task is done. number: how many tasks had been handed out before it"""

    worker: int
    number: int
    name: str
    result: R


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A task ended with an error of the harness; its worker goes on. number: as of one done"""

    worker: int
    number: int
    name: str
    breakage: Breakage


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended(Generic[R]):
    """A worker has done all that it was given. result: of its `end`"""

    worker: int
    result: R | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """A worker is gone before its end. doing: the name of its task; why: how it went
    command: what does that task alone
    """

    worker: int
    doing: str
    why: str
    command: str = ""

    @property
    def text(self) -> str:
        """For people."""
        return f"worker {self.worker} {self.why}; it was at {self.doing}"

    @property
    def breakage(self) -> Breakage:
        """As an error of the harness."""
        return Breakage(
            at=self.doing, error=f"worker {self.worker} {self.why}", command=self.command
        )


@dataclass(frozen=True, slots=True)
class Tick:
    """Nothing has happened for a moment: time to look at a clock."""


Event: TypeAlias = Done[R] | Failed | Ended[R] | Lost | Tick
Events: TypeAlias = Generator[Done[R] | Failed | Ended[R] | Lost | Tick, None, None]
MakeWorker: TypeAlias = Callable[[int], Worker[T, R]]
Shares: TypeAlias = Sequence[Iterator[Task[T]]]


class Pool(Protocol):
    """Where workers are: in this process, in several, later on other machines."""

    def run(self, make: MakeWorker[T, R], shares: Shares[T]) -> Events[R]:
        """Does all tasks and says so as it goes. Its workers end with it: close it.

        make: makes a worker from its number; shares: the tasks of each worker
        """
        ...


def pool_of(workers: int, *, timeout_s: float = 0.0) -> Pool:
    """One worker needs no process of its own. timeout_s: for each task; 0 is no limit"""
    if workers == 1:
        return InProcessPool(timeout_s=timeout_s)
    return ProcessPool(silent_s=timeout_s or None)


def spread(tasks: Iterable[Task[T]], workers: int) -> Shares[T]:
    """The same tasks for all workers: whoever is free takes the next."""
    return [iter(tasks)] * workers


def in_order(events: Iterable[Event[R]]) -> Events[R]:
    """Results in the order in which their tasks were handed out; the rest as it comes."""
    waiting: dict[int, Done[R] | Failed] = {}
    number = 0
    for event in events:
        if not isinstance(event, Done | Failed):
            yield event
            continue
        waiting[event.number] = event
        while number in waiting:
            yield waiting.pop(number)
            number += 1


class InProcessPool:
    """One worker, here. timeout_s: for each task; 0 is no limit"""

    def __init__(self, *, timeout_s: float = 0.0) -> None:
        self._timeout_s = timeout_s

    def run(self, make: MakeWorker[T, R], shares: Shares[T]) -> Events[R]:
        """See Pool. One share."""
        (share,) = shares
        with Caught("its start") as caught:
            worker = make(0)
        if caught.breakage is not None:
            yield Lost(worker=0, doing="its start", why=_broke(caught.breakage))
            return
        for number, task in enumerate(share):
            yield self._done(worker, number, task)
        with Caught("its end") as caught:
            last = worker.end()
        if caught.breakage is not None:
            yield Lost(worker=0, doing="its end", why=_broke(caught.breakage))
            return
        yield Ended(worker=0, result=last)

    def _done(self, worker: Worker[T, R], number: int, task: Task[T]) -> Done[R] | Failed:
        name = task.name
        with (
            Caught(name, command=task.command) as caught,
            limited_time(self._timeout_s, name),
        ):
            return Done(worker=0, number=number, name=name, result=worker.work(task.content))
        assert caught.breakage is not None
        return Failed(worker=0, number=number, name=name, breakage=caught.breakage)


def _broke(breakage: Breakage) -> str:
    """Why a worker is gone, in words."""
    return f"broke: {breakage.error} ({breakage.place})"


@dataclass(slots=True)
class _Member(Generic[T]):
    """A worker as its driver sees it. task: None before its first, and behind its last"""

    number: int
    share: Iterator[Task[T]]
    process: SpawnProcess
    pipe: Connection
    task: Task[T] | None = None
    task_number: int = 0
    since: float = math.inf
    is_ending: bool = False

    @property
    def doing(self) -> str:
        if self.task is not None:
            return self.task.name
        return "its end" if self.is_ending else "its start"

    def lost(self, why: str) -> Lost:
        command = "" if self.task is None else self.task.command
        return Lost(worker=self.number, doing=self.doing, why=why, command=command)


@dataclass(frozen=True, slots=True)
class _Refused:
    """From a worker: bad input, in its words (an error itself need not survive pickling)."""

    reason: str


@dataclass(frozen=True, slots=True)
class _Broke:
    """From a worker: an error of the harness at its task, its start or its end."""

    breakage: Breakage


class ProcessPool:
    """A process for each worker.

    silent_s: a worker that is at one task for longer is lost; None is no bound
    """

    def __init__(self, *, silent_s: float | None = None) -> None:
        self._silent_s = math.inf if silent_s is None else silent_s

    def run(self, make: MakeWorker[T, R], shares: Shares[T]) -> Events[R]:
        """See Pool."""
        members: list[_Member[T]] = []
        try:
            for number, share in enumerate(shares):
                with stops_later():
                    members.append(_start(make, number, share))
            yield from self._events(members)
        finally:
            for member in members:
                member.process.kill()
            for member in members:
                member.process.join()
                member.pipe.close()

    def _events(self, members: list[_Member[T]]) -> Events[R]:
        handed = 0
        here = {member.pipe: member for member in members}
        for member in members:
            handed += _hand_out(member, handed)
        while here:
            ready = wait(list(here), timeout=TICK_S)
            for pipe in ready:
                assert isinstance(pipe, Connection)
                member = here[pipe]
                event: Done[R] | Failed | Ended[R] | Lost = _heard(member)
                member.since = math.inf
                # First the event: what it says may decide what there is to do next.
                yield event
                if isinstance(event, Done | Failed):
                    handed += _hand_out(member, handed)
                else:
                    del here[pipe]
            for member in list(here.values()):
                if time.monotonic() - member.since > self._silent_s:
                    del here[member.pipe]
                    member.process.kill()
                    yield member.lost(f"has said nothing for {self._silent_s:g} s")
            if not ready:
                yield Tick()


def _start(make: MakeWorker[T, R], number: int, share: Iterator[Task[T]]) -> _Member[T]:
    context = multiprocessing.get_context("spawn")
    pipe, its_end = context.Pipe()
    process = context.Process(
        target=_serve, args=(make, number, its_end), name=f"worker {number}", daemon=True
    )
    # A worker leaves Ctrl-C to its driver from its first moment, also while it is imported.
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    # Or nobody would notice that the worker has closed it.
    its_end.close()
    return _Member(number=number, share=share, process=process, pipe=pipe)


def _hand_out(member: _Member[T], number: int) -> int:
    """The next task of a member, or that there is none; how many tasks that was."""
    member.task = next(member.share, None)
    member.task_number = number
    member.is_ending = member.task is None
    member.since = time.monotonic()
    # If it is gone, reading says so too, and how it went.
    with suppress(OSError):
        member.pipe.send(member.task)
    return int(member.task is not None)


def _heard(member: _Member[T]) -> Done[R] | Failed | Ended[R] | Lost:
    """What a member says, or that it is gone. Raises RefusedError."""
    try:
        said: R | _Refused | _Broke = member.pipe.recv()
    except (EOFError, OSError):
        member.process.join()
        return member.lost(_how_it_ended(member.process.exitcode))
    if isinstance(said, _Refused):
        raise RefusedError(said.reason)
    task, worker = member.task, member.number
    if isinstance(said, _Broke):
        if task is None:
            return member.lost(_broke(said.breakage))
        breakage = msgspec.structs.replace(said.breakage, at=task.name, command=task.command)
        return Failed(worker=worker, number=member.task_number, name=task.name, breakage=breakage)
    if task is None:
        return Ended(worker=worker, result=said)
    return Done(worker=worker, number=member.task_number, name=task.name, result=said)


def _how_it_ended(exit_code: int | None) -> str:
    if exit_code is not None and exit_code < 0:
        return f"was killed by {signal.Signals(-exit_code).name}"
    return f"ended with exit code {exit_code} (its error is above)"


def _serve(make: MakeWorker[T, R], number: int, pipe: Connection) -> None:
    """In a worker process: tasks until there are no more, or the driver is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_driver, daemon=True).start()
    try:
        worker = make(number)
        tasks: Iterator[Task[T]] = iter(partial(_next_task, pipe), None)
        for task in tasks:
            _say(pipe, partial(worker.work, task.content))
        _say(pipe, worker.end)
    except BadInputError as error:
        pipe.send(_Refused(str(error)))


def _say(pipe: Connection, work: Callable[[], object]) -> None:
    """Sends what comes of it, or what broke it."""
    with Caught("its work") as caught:
        pipe.send(work())
    if caught.breakage is not None:
        pipe.send(_Broke(caught.breakage))


def _next_task(pipe: Connection) -> Task[T] | None:
    """None if there are no more. Ends the process if the driver is gone."""
    try:
        task: Task[T] | None = pipe.recv()
    except EOFError:
        raise SystemExit(1) from None
    return task


def _end_with_driver() -> None:
    """Ends this process, wherever it is, when the one that started it is gone."""
    driver = multiprocessing.parent_process()
    assert driver is not None
    driver.join()
    os._exit(1)
