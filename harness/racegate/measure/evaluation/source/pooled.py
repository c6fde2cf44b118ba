"""What a source needs done, through the pool of workers: results as they come."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import TypeVar

from racegate.jobs.pools.choice import pool_of
from racegate.jobs.pools.pool import Done, Failed, Lost, MakeWorker, PoolError, Task, spread
from racegate.jobs.stopping import StoppedError

T = TypeVar("T")
R = TypeVar("R")


def pooled(
    make: MakeWorker[T, R], tasks: Sequence[Task[T]], *, workers: int, what: str
) -> Iterator[R]:
    """Results as they come; whoever is free takes the next task. what: they are, for whoever stops

    Raises StoppedError; after everything else was done, PoolError for what failed.
    """
    done, failed = 0, []
    events = pool_of(workers).run(make, spread(tasks, workers))
    try:
        with closing(events):
            for event in events:
                match event:
                    case Done():
                        done += 1
                        yield event.result
                    case Failed():
                        failed.append(event.breakage.text)
                    case Lost():
                        raise PoolError(event.text)
    except KeyboardInterrupt as stop:
        go_on = "the same command, which goes on with --keep"
        raise StoppedError(stop, done=f"{done} {what}", go_on=go_on) from stop
    if failed:
        raise PoolError("\n".join(failed))
