"""LineRecording: which lines each scenario or test executes, in parallel, resumable. A file of
tests is recorded on its own, so that a change of one costs no other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from pathlib import Path

from racegate.jobs.pools.pool import Task
from racegate.measure.evaluation.source.kept import KeptReach, digest_of
from racegate.measure.evaluation.source.pooled import pooled
from racegate.measure.evaluation.source.reach import LineReach, merged
from racegate.measure.evaluation.source.sources import (
    LineRecording,
    Source,
    parts_of,
    recording_of,
)

# How many are done, of how many, and which was the last.
OnDone = Callable[[int, int, str], None]


class RecordingWorker:
    """Records parts, each in a child."""

    def __init__(self, recording: LineRecording) -> None:
        self._recording = recording

    def work(self, part: str) -> tuple[str, LineReach]:
        """One part, and its name."""
        return part, self._recording.record(part)

    def end(self) -> None:
        """There is nothing left to say."""


def make_recording_worker(source: Source, parts: Sequence[str], number: int) -> RecordingWorker:
    """In a worker process; every worker is like the other."""
    recording = recording_of(source, parts)
    recording.prepare()
    return RecordingWorker(recording)


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
