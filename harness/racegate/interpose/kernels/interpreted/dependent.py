"""Launches that begin before the one in front of them has ended (programmatic dependent launch).

A launch with `launch_pdl` may begin once every program of the launch before it on its stream has
triggered or ended. What that one does behind its trigger is complete only for what stands behind a
wait (`gdc_wait`). A wait is for the launch before alone: if that one does not wait itself, its end
does not say that those before it have ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

from racegate.history.finding import Stack
from racegate.interpose.kernels.interpreted.accesses import (
    EarlierLaunch,
    LaunchRace,
    MissingEdge,
    ProgramAccess,
)

_RUNNING_MAX = 16  # launches of a stream that may run at once, and are kept
_PAIRS_MAX = 20_000  # of accesses, that are compared for one launch


class PhasedLaunch(NamedTuple):
    """What a launch does, and when. waits, triggers: by program, how many of its touches the launch
    had come to at the first wait and at the first trigger
    """

    kernel: str
    stack: Stack
    touches: Sequence[ProgramAccess]
    waits: Mapping[int, int]
    triggers: Mapping[int, int]

    def behind_trigger(self) -> list[ProgramAccess]:
        never = len(self.touches)
        return [one for one in self.touches if one.at >= self.triggers.get(one.program, never)]

    def before_wait(self) -> list[ProgramAccess]:
        never = len(self.touches)
        return [one for one in self.touches if one.at < self.waits.get(one.program, never)]

    def behind_wait(self) -> list[ProgramAccess]:
        never = len(self.touches)
        return [one for one in self.touches if one.at >= self.waits.get(one.program, never)]

    def waits_before_trigger(self) -> bool:
        """Whether some program cannot have triggered, or ended, before it had waited."""
        never = len(self.touches) + 1
        return any(at <= self.triggers.get(program, never) for program, at in self.waits.items())


class RunningLaunches(NamedTuple):
    """What may still run on a stream behind a launch.

    last: the launch itself; at_start: others that may run when the next one begins early
    at_end: others that may run when the last one has ended
    """

    last: PhasedLaunch
    at_start: tuple[PhasedLaunch, ...] = ()
    at_end: tuple[PhasedLaunch, ...] = ()


class DependentLaunches:
    """The launches of each stream that the next one may overlap with."""

    def __init__(self) -> None:
        self._running: dict[int, tuple[int, RunningLaunches]] = {}
        self._now: RunningLaunches | None = None

    def judge(
        self, stream: int, number: int, launch: PhasedLaunch, *, begins_early: bool
    ) -> tuple[LaunchRace, ...]:
        """What a launch races with, before it is issued. number: of what the stream was given last:
        a launch can begin early only if the launch before it is that
        """
        at, running = self._running.pop(stream, (-1, None))
        before = running if begins_early and at == number else None
        is_alone = not (launch.triggers or begins_early)
        self._now = None if is_alone else behind(before, launch)
        return () if before is None else tuple(judge_dependent(before, launch))

    def issued(self, stream: int, number: int) -> None:
        """The launch that was judged last is on its stream, as what has this number there."""
        if self._now is not None:
            self._running[stream], self._now = (number, self._now), None


def judge_dependent(running: RunningLaunches, launch: PhasedLaunch) -> list[LaunchRace]:
    """What races between a launch that begins early and those before it; for each two lines one."""
    found: dict[object, LaunchRace] = {}
    early = launch.before_wait()
    pairs = [(one, early, MissingEdge.WAIT) for one in (running.last, *running.at_start)]
    late = launch.behind_wait()
    pairs += [(one, late, MissingEdge.WAIT_BETWEEN) for one in running.at_end]
    for one, ours, lack in pairs:
        for race in _races(one, one.behind_trigger(), ours, lack):
            found.setdefault((race.first.place, race.second.place), race)
    return list(found.values())


def behind(running: RunningLaunches | None, launch: PhasedLaunch) -> RunningLaunches:
    """What may run behind a launch. running: behind the one before it, None where this one begins
    only when all before it has ended
    """
    if running is None:
        return RunningLaunches(launch)
    last = (running.last,) if running.last.triggers else ()
    at_start = (*running.at_start, *last)
    if launch.waits_before_trigger():
        at_start = running.at_end
    at_end = running.at_end if launch.waits else (*running.at_end, *last)
    return RunningLaunches(launch, at_start[-_RUNNING_MAX:], at_end[-_RUNNING_MAX:])


def _races(
    earlier: PhasedLaunch,
    ours: Iterable[ProgramAccess],
    theirs: Iterable[ProgramAccess],
    lack: MissingEdge,
) -> Iterator[LaunchRace]:
    spans = [[(one, *_hull(one)) for one in side if one.addresses.size] for side in (ours, theirs)]
    before = EarlierLaunch(earlier.kernel, earlier.stack)
    looked = 0
    for (first, low, high), (second, start, end) in product(*spans):
        if not (first.is_write or second.is_write) or low >= end or start >= high:
            continue
        looked += 1
        if looked > _PAIRS_MAX:
            return
        common = np.intersect1d(_bytes_of(first), _bytes_of(second))
        if common.size:
            at = int(common[0])
            yield LaunchRace(first, second, at, at + 1, lack, before)


def _hull(touch: ProgramAccess) -> tuple[int, int]:
    return int(touch.addresses.min()), int(touch.addresses.max()) + touch.size


def _bytes_of(touch: ProgramAccess) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    parts = np.arange(touch.size, dtype=np.uint64)
    return (np.unique(touch.addresses)[:, None] + parts).ravel()
