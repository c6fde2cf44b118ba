"""The job: sequences first, then hunts through them, in parallel and resumable.

The slowest tenth of all targets is chosen by uniform generation with seeds of its own: a target
that was slow there by chance counts in no approach's favour.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import product
from pathlib import Path

from racegate.history.outcome import SCHEMA
from racegate.jobs.environment import environment
from racegate.jobs.pools.choice import pool_of
from racegate.jobs.pools.pool import Done, Failed, Lost, PoolError, Task
from racegate.jobs.stopping import StoppedError
from racegate.measure.evaluation.learning.figures import compared, rows_of, slowest
from racegate.measure.evaluation.learning.hunt import Hunter
from racegate.measure.evaluation.learning.results import Approach, Hunt, LearnObject, LearnSpec
from racegate.measure.evaluation.learning.sequences import ScenarioSequence, sequence_of
from racegate.measure.evaluation.learning.targets import ENGINE, HuntTarget, all_targets
from racegate.measure.evaluation.source.kept import add_line, lines_of, state_of
from racegate.measure.evaluation.source.sources import find_source
from racegate.scenario.strict import StrictStruct

# Seeds that choose the slowest targets, and scenarios of each; those that compare begin behind.
CHOOSING, CHOOSING_SCENARIOS = 4, 64
# Targets that are hunted at once: the references of a sequence are computed for each part.
PART = 1

OnDone = Callable[[str], None]


class LearnTask(StrictStruct, frozen=True, kw_only=True):
    """A sequence to be drawn, for these targets; or, if there is one, to be tried on them."""

    approach: Approach
    seed: int
    scenarios: int
    targets: tuple[HuntTarget, ...]
    sequence: ScenarioSequence | None = None


Answer = ScenarioSequence | list[Hunt]


class LearnWorker:
    """Draws sequences and hunts; keeps the references of the last sequence."""

    def __init__(self) -> None:
        self._at: tuple[Approach, int] | None = None
        self._hunter: Hunter | None = None

    def work(self, task: LearnTask) -> Answer:
        """One task."""
        if task.sequence is None:
            return sequence_of(task.approach, task.seed, task.scenarios, task.targets)
        if self._hunter is None or self._at != (task.approach, task.seed):
            self._at, self._hunter = (task.approach, task.seed), Hunter(task.sequence)
        return [
            Hunt(
                approach=task.approach,
                seed=task.seed,
                target=target.name,
                scenarios=task.scenarios,
                first=self._hunter.first(target),
            )
            for target in task.targets
        ]

    def end(self) -> None:
        """There is nothing left to say."""


def make_worker(number: int) -> LearnWorker:
    """In a worker process; every worker is like the other."""
    return LearnWorker()


class _Job:
    """One run of the job. keep: what was hunted before, and will be known after"""

    def __init__(self, keep: Path | None, end: float, workers: int, on_done: OnDone) -> None:
        self._keep = keep
        self._end = end
        self._workers = workers
        self._on_done = on_done
        self._state = state_of(find_source(ENGINE))
        self._hunts = [one for state, one in lines_of(keep, Hunt) if state == self._state]

    def hunted(
        self, places: Sequence[tuple[int, Approach]], scenarios: int, targets: Sequence[HuntTarget]
    ) -> list[Hunt]:
        """Every target by every approach and seed, as far as time allows; what is known is not done
        again.
        """
        wanted = {(approach, seed, one.name) for seed, approach in places for one in targets}
        known = {
            (hunt.approach, hunt.seed, hunt.target)
            for hunt in self._hunts
            if hunt.scenarios == scenarios
        }
        left = {
            (approach, seed): tuple(
                one for one in targets if (approach, seed, one.name) not in known
            )
            for seed, approach in places
        }
        draws = [
            LearnTask(approach=approach, seed=seed, scenarios=scenarios, targets=some)
            for (approach, seed), some in left.items()
            if some
        ]
        # The hunts of some sequences come before the next are drawn: seeds end one after the other.
        for start in range(0, len(draws), self._workers):
            sequences = self._done(draws[start : start + self._workers])
            hunts = [
                LearnTask(
                    approach=one.approach,
                    seed=one.seed,
                    scenarios=scenarios,
                    targets=left[one.approach, one.seed][first : first + PART],
                    sequence=one,
                )
                for one in sequences
                if isinstance(one, ScenarioSequence)
                for first in range(0, len(left[one.approach, one.seed]), PART)
            ]
            self._done(hunts)
        return [
            hunt
            for hunt in self._hunts
            if (hunt.approach, hunt.seed, hunt.target) in wanted and hunt.scenarios == scenarios
        ]

    def _done(self, tasks: Sequence[LearnTask]) -> list[Answer]:
        waiting = list(tasks)
        shares = [self._in_time(waiting) for _ in range(self._workers)]
        found: list[Answer] = []
        failed = []
        try:
            with closing(pool_of(self._workers).run(make_worker, shares)) as events:
                for event in events:
                    match event:
                        case Done(result=answer) if answer is not None:
                            found.append(answer)
                            self._keep_hunts(answer)
                        case Failed() | Lost():
                            failed.append(event.breakage.text)
        except KeyboardInterrupt as stop:
            done = f"{len(self._hunts)} hunts"
            raise StoppedError(stop, done=done, go_on="the same command with --keep") from stop
        if failed:
            raise PoolError("\n".join(failed))
        return found

    def _keep_hunts(self, answer: Answer) -> None:
        for hunt in answer if isinstance(answer, list) else ():
            self._hunts.append(hunt)
            add_line(self._keep, self._state, hunt)

    def _in_time(self, waiting: list[LearnTask]) -> Iterator[Task[LearnTask]]:
        """For one worker, which stays with a sequence as long as there is something left of it: it
        has its references. waiting: tasks that nobody has taken, of all workers
        """
        place = None
        while waiting and time.monotonic() < self._end:
            places = Counter(_place(task) for task in waiting)
            if place not in places:
                place = max(places, key=lambda one: places[one])
            task = next(task for task in waiting if _place(task) == place)
            waiting.remove(task)
            what = "drawing" if task.sequence is None else f"{len(task.targets)} targets"
            name = f"{task.approach}, seed {task.seed}: {what}"
            self._on_done(name)
            yield Task(name=name, content=task)


def _place(task: LearnTask) -> tuple[Approach, int]:
    return task.approach, task.seed


def compare(
    asked: LearnSpec,
    *,
    workers: int,
    seconds: float = float("inf"),
    keep: Path | None = None,
    on_done: OnDone = lambda name: None,
) -> LearnObject:
    """Chooses the slowest targets, then hunts them by all approaches. keep: a file to go on with

    Raises StoppedError.
    """
    end = time.monotonic() + seconds
    made_with = environment()
    job = _Job(keep, end, workers, on_done)
    targets = all_targets()[:: asked.every]
    choosing = job.hunted(
        [(seed, Approach.UNIFORM) for seed in range(CHOOSING)], CHOOSING_SCENARIOS, targets
    )
    is_chosen = len(choosing) == CHOOSING * len(targets)
    slow, unnoticed = slowest(choosing) if is_chosen else ([], [])
    hunted = [target for target in targets if target.name in {*slow, *unnoticed}]
    places = list(product(range(CHOOSING, CHOOSING + asked.seeds), asked.with_uniform))
    hunts = job.hunted(places, asked.scenarios, hunted)
    every = [compared(hunts, approach, [*slow, *unnoticed]) for approach in asked.approaches]
    return LearnObject(
        schema=SCHEMA,
        environment=made_with,
        spec=asked,
        targets=len(targets),
        approaches=tuple(row for row in every if row is not None),
        slow=rows_of(hunts, slow),
        unnoticed=rows_of(hunts, unnoticed),
        is_complete=is_chosen and len(hunts) == len(places) * len(hunted),
        hunts=tuple(hunts),
    )
