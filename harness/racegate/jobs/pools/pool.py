"""A worker pool: one way to run many tasks, in this process, in several or on a cluster.

Every worker has an iterator of tasks, which is asked for the next one when the worker is free. One
iterator that all workers share hands tasks to whoever is free (`spread`); one for each pins them,
where workers have state. A worker whose iterator ends comes to its end, so a bound in time is a
matter of the iterator. Tasks are numbered as they are handed out, and `in_order` gives what they
yield in this order, whoever did them and whenever they were done. An iterator that has ended may be
asked again, by a worker that takes the place of one that was lost.

A worker is made in its process by a function that is pickled, as tasks and results are. No process
outlives the pool: workers leave Ctrl-C to their driver, which ends them, and end by themselves if
the driver is gone.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeAlias, TypeVar, cast, runtime_checkable

from racegate.history.breakage import Breakage, Caught
from racegate.jobs.pools.time_limit import limited_time
from racegate.scenario.errors import BadInputError, BrokenHarnessError

T = TypeVar("T")
R = TypeVar("R")
T_contra = TypeVar("T_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)


class PoolError(BrokenHarnessError):
    """A worker was lost, and with it what it was doing."""


class RefusedError(BadInputError):
    """What a worker was given cannot be used: the reason that it gave."""


class Worker(Protocol[T_contra, R_co]):
    """Does tasks in a process, one after the other."""

    def work(self, task: T_contra, /) -> R_co:
        """One task."""
        ...


@dataclass(frozen=True, slots=True)
class TaskWorker(Generic[T, R]):
    """A worker that has nothing to remember: a function does each task."""

    work: Callable[[T], R]


@runtime_checkable
class ClosingWorker(Protocol[R_co]):
    """A worker that has something left to do, or to say, behind its last task."""

    def end(self) -> R_co | None:
        """After the last task: what is left to say, if anything is."""
        ...


SayAlive: TypeAlias = Callable[[], None]


@runtime_checkable
class PatientWorker(Protocol[T_contra, R_co]):
    """A worker with tasks that take long and give signs of life."""

    def work_on(self, task: T_contra, say_alive: SayAlive, /) -> R_co:
        """One task, whose time begins anew with each sign of life."""
        ...


def worked(worker: Worker[T, R], task: T, say_alive: SayAlive) -> R:
    """What comes of a task."""
    if isinstance(worker, PatientWorker):
        return cast("PatientWorker[T, R]", worker).work_on(task, say_alive)
    return worker.work(task)


def ended(worker: Worker[T, R]) -> R | None:
    """What a worker has to say at its end."""
    return cast("ClosingWorker[R]", worker).end() if isinstance(worker, ClosingWorker) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Task(Generic[T]):
    """name: in words, for progress, and to say what a worker was doing if it is lost
    command: what does the same alone
    """

    name: str
    content: T
    command: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A worker is made, and gets its first task. place: where it is, for people"""

    worker: int
    place: str


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


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedBack:
    """A worker is gone, and what it was doing waits for another one: a task, or its start. why: how
    it went
    """

    worker: int
    doing: str
    why: str

    @property
    def text(self) -> str:
        """For people."""
        return f"worker {self.worker} {self.why}; it was at {self.doing}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAside:
    """A task took its worker with it as often as it was let. number: as of one done; content: of
    the task
    """

    worker: int
    number: int
    name: str
    content: object
    breakage: Breakage

    @property
    def text(self) -> str:
        """Of its last worker, for people."""
        return f"worker {self.worker} was at {self.name}: {self.breakage.error}"


@dataclass(frozen=True, slots=True)
class Tick:
    """Nothing has happened for a moment: time to look at a clock."""


Event: TypeAlias = Started | Done[R] | Failed | SetAside | HandedBack | Ended[R] | Lost | Tick
Events: TypeAlias = Generator[
    Started | Done[R] | Failed | SetAside | HandedBack | Ended[R] | Lost | Tick, None, None
]
MakeWorker: TypeAlias = Callable[[int], Worker[T, R]]
Shares: TypeAlias = Sequence[Iterator[Task[T]]]


@runtime_checkable
class ChoosyShare(Protocol[T]):
    """Tasks of a worker that cannot do all that others do."""

    def takes(self, task: Task[T], /) -> bool:
        """Whether it does this one, which another worker had when it was lost."""
        ...


class Pool(Protocol):
    """Where workers are: in this process, in several, on other machines."""

    def run(self, make: MakeWorker[T, R], shares: Shares[T]) -> Events[R]:
        """Does all tasks and says so as it goes. Its workers end with it: close it.

        make: makes a worker from its number; shares: the tasks of each worker
        """
        ...


def spread(tasks: Iterable[Task[T]], workers: int) -> Shares[T]:
    """The same tasks for all workers: whoever is free takes the next."""
    return [iter(tasks)] * workers


def in_order(events: Iterable[Event[R]]) -> Events[R]:
    """Results in the order in which their tasks were handed out; the rest as it comes."""
    waiting: dict[int, Done[R] | Failed | SetAside] = {}
    number = 0
    for event in events:
        if not isinstance(event, Done | Failed | SetAside):
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
            yield Lost(worker=0, doing="its start", why=broke(caught.breakage))
            return
        yield Started(worker=0, place=place_here())
        for number, task in enumerate(share):
            yield self._done(worker, number, task)
        with Caught("its end") as caught:
            last = ended(worker)
        if caught.breakage is not None:
            yield Lost(worker=0, doing="its end", why=broke(caught.breakage))
            return
        yield Ended(worker=0, result=last)

    def _done(self, worker: Worker[T, R], number: int, task: Task[T]) -> Done[R] | Failed:
        name = task.name
        with (
            Caught(name, command=task.command) as caught,
            limited_time(self._timeout_s, name) as say_alive,
        ):
            result = worked(worker, task.content, say_alive)
            return Done(worker=0, number=number, name=name, result=result)
        assert caught.breakage is not None
        return Failed(worker=0, number=number, name=name, breakage=caught.breakage)


def place_here() -> str:
    """Of this process, among all machines."""
    return f"{platform.node()}, process {os.getpid()}"


def broke(breakage: Breakage) -> str:
    """Why a worker is gone, in words."""
    return f"broke: {breakage.error} ({breakage.place})"
