"""Strategies: how many schedules each of them needs until a fault has made a value wrong."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec

from racegate.check.checker import Checker
from racegate.check.repro.search import CheckSubject, JudgedAttempt, as_holds
from racegate.check.subject import LaunchMode
from racegate.device.stepping import Stepper
from racegate.explore.dpor import explore
from racegate.explore.ladder import Noting, reversals
from racegate.explore.samplers.pos import PosStepper
from racegate.explore.samplers.random_walk import RandomStepper
from racegate.faults.fault import Fault
from racegate.history.schedule import EAGER, LATE, Schedule, lane_late
from racegate.measure.evaluation.cells import Strategy, StrategyCell, sight_of


class _Counted:
    """A subject that counts its runs, also those that a search cuts short."""

    def __init__(self, subject: CheckSubject) -> None:
        self._subject = subject
        self.lanes = subject.lanes
        self.made = 0

    def with_schedule(self, schedule: Schedule) -> JudgedAttempt:
        self.made += 1
        return self._subject.with_schedule(schedule)

    def with_stepper(self, stepper: Stepper) -> JudgedAttempt:
        self.made += 1
        return self._subject.with_stepper(stepper)


# Runs schedules until there are none left, or what it shows them to has seen enough.
See = Callable[[JudgedAttempt], bool]
Search = Callable[[_Counted, See, int, int], None]


def _those(schedules: Sequence[Schedule], subject: _Counted, see: See, *_: int) -> None:
    for schedule in schedules:
        if not see(subject.with_schedule(schedule)):
            return


def _lanes_late(subject: _Counted, see: See, *_: int) -> None:
    _those([lane_late(lane) for lane in subject.lanes], subject, see)


def _reversals(subject: _Counted, see: See, budget: int, seed: int) -> None:
    first = subject.with_schedule(EAGER)
    if see(first):
        holds = reversals(first.conflicts)[: budget - 1]
        _those([Schedule(holds=(hold,)) for hold in holds], subject, see)


def _dpor(subject: _Counted, see: See, budget: int, seed: int) -> None:
    explore(
        subject.with_stepper,
        classes_max=budget,
        on_result=lambda attempt, progress, steps: see(
            msgspec.structs.replace(attempt, steps=tuple(steps))
        ),
    )


def _samples(
    make: Callable[[int], Stepper], subject: _Counted, see: See, budget: int, seed: int
) -> None:
    for number in range(budget):
        noting = Noting(make(seed + number))
        attempt = subject.with_stepper(noting)
        if not see(msgspec.structs.replace(attempt, steps=tuple(noting.steps))):
            return


_SEARCHES: Mapping[Strategy, Search] = {
    Strategy.EAGER: partial(_those, (EAGER,)),
    Strategy.LATE: partial(_those, (LATE,)),
    Strategy.LANE_LATE: _lanes_late,
    Strategy.REVERSALS: _reversals,
    Strategy.DPOR: _dpor,
    Strategy.POS: partial(_samples, PosStepper),
    Strategy.RANDOM: partial(_samples, RandomStepper),
    Strategy.SYNC_EVERYWHERE: partial(_those, (EAGER,)),
}


def try_strategy(
    strategy: Strategy, fault: Fault, checkers: Sequence[Checker], *, budget: int, seed: int
) -> StrategyCell:
    """Script by script, until a value is wrong. budget: schedules per script."""
    is_synced = strategy is Strategy.SYNC_EVERYWHERE
    launches = LaunchMode.BLOCKING if is_synced else LaunchMode.ASYNC
    made = 0
    flagged: int | None = None
    started = time.perf_counter()
    for checker in checkers:
        subject = _Counted(CheckSubject(checker, fault, is_audited=False, launches=launches))
        watch = _Watch(subject)
        _SEARCHES[strategy](subject, watch.see, budget, seed)
        if flagged is None and watch.flagged is not None:
            flagged = made + watch.flagged
        made += subject.made
        seconds = time.perf_counter() - started
        if watch.wrong is not None:
            kill = sight_of(
                fault, as_holds(checker, watch.wrong, fault), schedules=made, seconds=seconds
            )
            return StrategyCell(schedules=made, seconds=seconds, flagged=flagged, kill=kill)
    seconds = time.perf_counter() - started
    return StrategyCell(schedules=made, seconds=seconds, flagged=flagged, kill=None)


class _Watch:
    """Sees the runs of a search: the first with a conflict, and the first that went wrong."""

    def __init__(self, subject: _Counted) -> None:
        self._subject = subject
        self.flagged: int | None = None
        self.wrong: JudgedAttempt | None = None

    def see(self, attempt: JudgedAttempt) -> bool:
        if attempt.conflicts and self.flagged is None:
            self.flagged = self._subject.made
        if attempt.is_wrong:
            self.wrong = attempt
        return not attempt.is_wrong
