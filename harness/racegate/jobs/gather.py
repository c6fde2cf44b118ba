"""Gathering: all tasks of a job through a pool, and what becomes of each."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Generic, TypeVar

from racegate.history.breakage import Breakage
from racegate.jobs.pools.choice import pool_of
from racegate.jobs.pools.pool import Done, Ended, Failed, Lost, MakeWorker, PoolError, Task
from racegate.jobs.stopping import StoppedError, done_of

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class GatheredResult(Generic[R]):
    """results: of the tasks that were done, in their order; last: what the workers said at their
    end; breakages: why others were not done
    stop: that came before the end, if one did; left: names of the tasks that it left
    """

    results: list[R]
    last: list[R]
    breakages: tuple[Breakage, ...]
    stop: KeyboardInterrupt | None = None
    left: tuple[str, ...] = ()


def run_all(
    make: MakeWorker[T, R],
    tasks: Iterable[Task[T]],
    *,
    workers: int,
    on_done: Callable[[str], None] = lambda name: None,
) -> tuple[list[R], list[R]]:
    """What all tasks yield, in their order, and what the workers say at their end. on_done: gets
    the name of each task as it is done.

    Raises PoolError if one was not done, RefusedError if a worker refuses its task, StoppedError
    if it was told to stop.
    """
    found = gather(make, tasks, workers=workers, on_done=on_done)
    if found.stop is not None:
        done = done_of(len(found.results), found.left)
        raise StoppedError(found.stop, done=done, results=found.results)
    if found.breakages:
        raise PoolError(" ".join(breakage.text for breakage in found.breakages))
    return found.results, found.last


def gather(
    make: MakeWorker[T, R],
    tasks: Iterable[Task[T]],
    *,
    workers: int,
    timeout_s: float = 0.0,
    on_done: Callable[[str], None] = lambda name: None,
) -> GatheredResult[R]:
    """What can be done of all tasks: what breaks one, or takes a worker, leaves the others; what
    stops all leaves what is done.

    Raises RefusedError if a worker refuses its task.
    """
    names: list[str] = []
    stop: KeyboardInterrupt | None = None
    found: dict[int, R] = {}
    last: dict[int, R] = {}
    broken: list[Breakage] = []
    waiting = _noting(tasks, names)
    pool = pool_of(workers, timeout_s=timeout_s)
    try:
        with closing(pool.run(make, [waiting] * workers)) as events:
            for event in events:
                match event:
                    case Done():
                        found[event.number] = event.result
                        on_done(event.name)
                    case Failed() | Lost():
                        broken.append(event.breakage)
                    case Ended(result=said) if said is not None:
                        last[event.worker] = said
    except KeyboardInterrupt as error:
        stop = error
        deque(waiting, maxlen=0)  # only their names are wanted
    return GatheredResult(
        stop=stop,
        left=tuple(name for number, name in enumerate(names) if stop and number not in found),
        results=[found[number] for number in sorted(found)],
        last=[last[worker] for worker in sorted(last)],
        breakages=(*broken, *_not_done(waiting)),
    )


def _noting(tasks: Iterable[Task[T]], names: list[str]) -> Iterator[Task[T]]:
    """The tasks, whose names are kept in the order in which they are handed out."""
    for task in tasks:
        names.append(task.name)
        yield task


def _not_done(tasks: Iterator[Task[T]]) -> Iterator[Breakage]:
    """Tasks for which no worker was left."""
    for task in tasks:
        yield Breakage(at=task.name, error="no worker was left to do it", command=task.command)
