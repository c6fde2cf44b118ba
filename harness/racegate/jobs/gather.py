"""Gathering: all tasks of a job through a pool, and what becomes of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Generic, TypeVar

from racegate.history.breakage import Breakage
from racegate.jobs.pool import Done, Ended, Failed, Lost, MakeWorker, PoolError, Task, pool_of

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class GatheredResult(Generic[R]):
    """results: of the tasks that were done, in their order; last: what the workers said at their
    end; breakages: why others were not done
    """

    results: list[R]
    last: list[R]
    breakages: tuple[Breakage, ...]


def run_all(
    make: MakeWorker[T, R],
    tasks: Iterable[Task[T]],
    *,
    workers: int,
    on_done: Callable[[str], None] = lambda name: None,
) -> tuple[list[R], list[R]]:
    """What all tasks yield, in their order, and what the workers say at their end. on_done: gets
    the name of each task as it is done.

    Raises PoolError if one was not done, RefusedError if a worker refuses its task.
    """
    found = gather(make, tasks, workers=workers, on_done=on_done)
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
    """What can be done of all tasks: what breaks one, or takes a worker, leaves the others.

    Raises RefusedError if a worker refuses its task.
    """
    found: dict[int, R] = {}
    last: dict[int, R] = {}
    broken: list[Breakage] = []
    waiting = iter(tasks)
    pool = pool_of(workers, timeout_s=timeout_s)
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
    return GatheredResult(
        results=[found[number] for number in sorted(found)],
        last=[last[worker] for worker in sorted(last)],
        breakages=(*broken, *_not_done(waiting)),
    )


def _not_done(tasks: Iterator[Task[T]]) -> Iterator[Breakage]:
    """Tasks for which no worker was left."""
    for task in tasks:
        yield Breakage(at=task.name, error="no worker was left to do it", command=task.command)
