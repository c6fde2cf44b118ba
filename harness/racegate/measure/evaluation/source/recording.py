"""LineRecording: which lines each scenario or test executes, in parallel, resumable. A file of
tests is recorded on its own, so that a change of one costs no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import count
from pathlib import Path
from typing import TypeVar

from racegate.jobs.pools.choice import pool_of
from racegate.jobs.pools.pool import (
    Done,
    Failed,
    Lost,
    MakeWorker,
    PoolError,
    Task,
    TaskWorker,
    spread,
)
from racegate.jobs.stopping import StoppedError
from racegate.measure.evaluation.source.kept import KeptReach, digest_of
from racegate.measure.evaluation.source.reach import LineReach, merged
from racegate.measure.evaluation.source.sources import (
    Source,
    parts_of,
    recording_of,
)

T = TypeVar("T")
R = TypeVar("R")

# How many are done, of how many, and which was the last.
OnDone = Callable[[int, int, str], None]


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


def make_recording_worker(
    source: Source, parts: Sequence[str], number: int
) -> TaskWorker[str, tuple[str, LineReach]]:
    """In a worker process; every worker is like the other. It records parts, each in a child."""
    recording = recording_of(source, parts)
    recording.prepare()
    return TaskWorker(lambda part: (part, recording.record(part)))


def reach_of(source: Source, kept: Path | None, *, workers: int, on_done: OnDone) -> LineReach:
    """Which lines each judge executes: as recorded, where nothing has changed since. kept: the file
    of results; that of recordings lies beside it
    """
    known = KeptReach(None if kept is None else kept.with_suffix(f".{source.name}.reach.jsonl"))
    digests = {part: digest_of(source, part) for part in parts_of(source)}
    left = [part for part, digest in digests.items() if digest not in known.found]
    if left:
        done = count(len(digests) - len(left))
        on_done(next(done), len(digests), source.name)
        make = partial(make_recording_worker, source, tuple(left))
        tasks = [Task(name=part, content=part) for part in left]
        for part, reach in pooled(make, tasks, workers=workers, what="parts recorded"):
            known.add(digests[part], reach)
            on_done(next(done), len(digests), part)
    return merged(known.found[digest] for digest in digests.values())
