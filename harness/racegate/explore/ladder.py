"""The ladder: cheap schedules first, and more only where a conflict exists and nothing has gone
wrong yet.

eager; everything late; the likeliest reversal; each lane in a conflict late, each early; one
reversal per conflict, host accesses of copy targets first; bounded reduction to completion;
samplers. Most known bugs need few reversals (Thomson, Donaldson and Betts, PPoPP 2014).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

import msgspec

from racegate.device.stepping import Stepper, Transition
from racegate.explore.dpor import Progress, explore
from racegate.explore.pairs import interesting_steps
from racegate.explore.samplers.portfolio import SamplerKind, make_sampler
from racegate.history.schedule import EAGER, FORCED, LATE, Hold, Schedule, lane_late
from racegate.history.trace import Conflict, HostAccess

T = TypeVar("T")


class Rung(StrEnum):
    """A rung of the ladder."""

    EAGER = "eager"
    LATE = "late"
    LANES = "lanes"
    REVERSALS = "reversals"
    DPOR = "dpor"
    SAMPLERS = "samplers"


class Attempt(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """One run, as far as a search has to know it. steps: in the order taken, of stepped runs
    value: what the subject makes of the run, handed through
    """

    schedule: Schedule | None
    steps: tuple[Transition, ...] = ()
    is_wrong: bool
    is_branching: bool
    conflicts: tuple[Conflict, ...]
    value: T


class Explorable(Protocol[T]):
    """What can be run under any schedule, again and again."""

    def with_schedule(self, schedule: Schedule) -> Attempt[T]:
        """A run with holds over the eager baseline."""
        ...

    def with_stepper(self, stepper: Stepper) -> Attempt[T]:
        """A run whose every step is taken by choice."""
        ...


class Climb(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """How far the ladder was climbed.

    first: the eager attempt; wrong: the first attempt that went wrong, if any; stage: where it
        ended
    schedules: runs made; progress: of the reduction, if it was reached; is_complete: all classes
        run
    """

    first: Attempt[T]
    wrong: Attempt[T] | None
    stage: Rung
    schedules: int
    progress: Progress | None
    is_complete: bool


def climb(subject: Explorable[T], *, lanes: Sequence[str], budget: int, seed: int) -> Climb[T]:
    """Climbs until something is wrong, all classes are run, or the budget of schedules is used."""
    first = subject.with_schedule(EAGER)
    if first.is_wrong:
        return _ended(first, first, Rung.EAGER, 1)
    if not first.conflicts and not first.is_branching:
        return _ended(first, None, Rung.EAGER, 1, is_complete=True)
    made = 1
    for stage, schedule in _schedules(first, lanes):
        if made >= budget:
            return _ended(first, None, stage, made)
        attempt = subject.with_schedule(schedule)
        made += 1
        if attempt.is_wrong:
            return _ended(first, attempt, stage, made)
    if made >= budget:
        return _ended(first, None, Rung.DPOR, made)
    return _search(subject, first, made=made, budget=budget, seed=seed)


def _schedules(first: Attempt[T], lanes: Sequence[str]) -> Iterator[tuple[Rung, Schedule]]:
    yield Rung.LATE, LATE
    likeliest = reversals(_recurring(first.conflicts))[:1]
    for hold in likeliest:
        yield Rung.REVERSALS, Schedule(holds=(hold,))
    concerned = _concerned(first, lanes)
    for lane in concerned:
        yield Rung.LANES, lane_late(lane)
    for lane in concerned:
        others = (Hold(op=f"{other}/*", until=FORCED) for other in lanes if other != lane)
        yield Rung.LANES, Schedule(holds=tuple(others))
    for hold in reversals(first.conflicts):
        if hold not in likeliest:
            yield Rung.REVERSALS, Schedule(holds=(hold,))


def _recurring(conflicts: Sequence[Conflict]) -> Sequence[Conflict]:
    """Those behind the first step of any: the first time, memory often holds the right value, the
    one it began with.
    """
    first_step = min((found.first.step for found in conflicts), default=0)
    return [found for found in conflicts if found.first.step > first_step] or conflicts


def _concerned(first: Attempt[T], lanes: Sequence[str]) -> list[str]:
    """The lanes with an operation in a conflict: what the others do turns none of them round."""
    numbers = {event.lane for found in first.conflicts for event in (found.first, found.second)}
    return [lane for number, lane in enumerate(lanes, start=1) if number in numbers] or list(lanes)


def reversals(conflicts: Sequence[Conflict]) -> list[Hold]:
    """One hold per pair of operations in conflict, the most suspicious first."""
    holds: dict[Hold, int] = {}
    for found in conflicts:
        hold = Hold(op=found.first.name, until=found.second.name)
        holds.setdefault(hold, _suspicion(found))
    return sorted(holds, key=lambda hold: holds[hold])


def _suspicion(found: Conflict) -> int:
    """0: the host touches a copy's target; 1: the host touches a copy's source; 2: the rest."""
    if not isinstance(found.second, HostAccess):
        return 2
    return 0 if found.first_writes else 1


def _search(
    subject: Explorable[T], first: Attempt[T], *, made: int, budget: int, seed: int
) -> Climb[T]:
    """The reduction with half of what is left of the budget, then samplers with the rest."""
    wrong: list[Attempt[T]] = []

    def on_result(attempt: Attempt[T], progress: Progress, steps: list[Transition]) -> bool:
        if attempt.is_wrong:
            wrong.append(msgspec.structs.replace(attempt, steps=tuple(steps)))
        return not attempt.is_wrong

    left = budget - made
    found = explore(subject.with_stepper, classes_max=max(1, left // 2), on_result=on_result)
    made += found.progress.classes + found.progress.blocked
    if wrong or found.is_complete:
        return _ended(
            first,
            wrong[0] if wrong else None,
            Rung.DPOR,
            made,
            progress=found.progress,
            is_complete=found.is_complete,
        )
    for number in range(budget - made):
        attempt = _sample(subject, found.results[0], number, seed)
        made += 1
        if attempt.is_wrong:
            return _ended(first, attempt, Rung.SAMPLERS, made, progress=found.progress)
    return _ended(first, None, Rung.SAMPLERS, made, progress=found.progress)


class Noting:
    """Wraps a stepper and notes the steps taken."""

    def __init__(self, stepper: Stepper) -> None:
        self._stepper = stepper
        self.steps: list[Transition] = []

    def choose(self, enabled: Sequence[Transition]) -> int:
        index = self._stepper.choose(enabled)
        self.steps.append(enabled[index])
        return index


def _sample(subject: Explorable[T], earlier: Attempt[T], number: int, seed: int) -> Attempt[T]:
    """One sampled schedule: POS first, then each of the portfolio in turn."""
    kinds = tuple(SamplerKind)
    stepper = make_sampler(
        kinds[number % len(kinds)],
        seed + number,
        steps=len(earlier.steps),
        interesting=interesting_steps(earlier.steps),
    )
    noting = Noting(stepper)
    attempt = subject.with_stepper(noting)
    return msgspec.structs.replace(attempt, steps=tuple(noting.steps))


def _ended(
    first: Attempt[T],
    wrong: Attempt[T] | None,
    stage: Rung,
    schedules: int,
    *,
    progress: Progress | None = None,
    is_complete: bool = False,
) -> Climb[T]:
    return Climb(
        first=first,
        wrong=wrong,
        stage=stage,
        schedules=schedules,
        progress=progress,
        is_complete=is_complete,
    )
