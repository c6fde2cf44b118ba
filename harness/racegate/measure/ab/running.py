"""A call of `racegate ab`: the waves that a folder lacks, one after the other, on one GPU or on
several side by side.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import msgspec

from racegate.device.cuda.torch import gpu_count, open_cuda
from racegate.jobs.environment import environment_of
from racegate.jobs.pools.choice import pool_of
from racegate.jobs.pools.pool import Done, Lost, MakeWorker, PoolError, Task
from racegate.measure.ab.folder import Folder, read_folder
from racegate.measure.ab.waves import (
    ArmWave,
    TruthError,
    TruthWave,
    VirtualWaveSite,
    WaveSite,
    cuda_wave_site,
    rehearse,
    run_arm,
    run_truth,
)
from racegate.measure.ab.workload import AbError, Arm
from racegate.scenario.untrusted.text import quoted


class WaveShare(msgspec.Struct, frozen=True):
    """Share `index` of `count` (from 1): every count-th wave. Parts may run beside each other."""

    index: int = 1
    count: int = 1

    def has(self, wave: int) -> bool:
        """Whether a wave is in it."""
        return wave % self.count == self.index - 1


def parse_share(text: str) -> WaveShare:
    """`2/4` is the second of four parts. Raises AbError."""
    found = re.fullmatch("([0-9]{1,6})/([0-9]{1,6})", text)
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise AbError(f"cannot read the part {quoted(text)}: write 2/4 for the second of four")
    return WaveShare(int(found[1]), int(found[2]))


class WaveSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What to show of a wave. wrong, stopped: see ArmWave"""

    arm: Arm
    wave: int
    generations: int
    tokens: int
    seconds: float
    wrong: int
    stopped: str | None


class WaveProgress(msgspec.Struct, frozen=True, kw_only=True):
    """A wave that is done. done, units: waves of arms, of this call; left_s: an estimate."""

    shown: WaveSummary
    done: int
    units: int
    elapsed_s: float

    @property
    def left_s(self) -> float:
        """If the rest takes as long as what is done."""
        return self.elapsed_s / self.done * (self.units - self.done)


class WrongTruth(msgspec.Struct, frozen=True, kw_only=True):
    """From a worker: a TruthError."""

    reason: str


class WaveTask(msgspec.Struct, frozen=True):
    """A wave of an arm."""

    arm: Arm
    wave: int


class WaveWorker:
    """Runs waves on one site, and keeps them in the folder."""

    def __init__(self, folder: Folder, site: WaveSite, environment: dict[str, str]) -> None:
        self._folder = folder
        self._site = site
        self._environment = environment
        self._rehearsed: set[Arm] = set()

    def work(self, task: WaveTask) -> WaveSummary | WrongTruth:
        """One wave. The truth of a wave is run before its arms."""
        plan = self._folder.plan
        if task.arm not in self._rehearsed:
            self._rehearsed.add(task.arm)
            rehearse(self._site, plan, task.arm)
        if task.arm is not Arm.TRUTH:
            return self._run_arm(task)
        try:
            truth = run_truth(self._site, plan, task.wave, self._environment)
        except TruthError as error:
            return WrongTruth(reason=str(error))
        self._folder.save_truth(truth)
        return _shown_truth(truth)

    def _run_arm(self, task: WaveTask) -> WaveSummary:
        known = self._folder.truth(task.wave)
        assert known is not None, "the truth of a wave is run before its arms"
        found = run_arm(self._site, self._folder.plan, task.arm, known, self._environment)
        self._folder.save_wave(found)
        return _shown_arm(found)


def make_worker(folder: Path, number: int) -> WaveWorker:
    """In a worker process: workers take turns with the GPUs of the machine. Raises NoCudaError."""
    opened = read_folder(folder)
    device = opened.plan.device
    site: WaveSite = VirtualWaveSite()
    if device != "virtual":
        site = cuda_wave_site(open_cuda(number % gpu_count()))
    return WaveWorker(opened, site, environment_of(device))


def worker_here(
    folder: Folder, site: WaveSite, environment: dict[str, str]
) -> MakeWorker[WaveTask, WaveSummary | WrongTruth]:
    """Makes the one worker that needs no process of its own."""
    return lambda number: WaveWorker(folder, site, environment)


class AbRunner:
    """Runs what is missing, wave by wave, so that at any time all arms have had the same requests.

    workers: run every so many-th wave, the truth first and then all arms, so that no worker waits
        for another
    seconds: no wave is begun that would probably end later than that; None is no bound
    """

    def __init__(
        self,
        folder: Folder,
        arms: Sequence[Arm],
        make: MakeWorker[WaveTask, WaveSummary | WrongTruth] | None = None,
        *,
        share: WaveShare | None = None,
        workers: int = 1,
        seconds: float | None = None,
    ) -> None:
        self._folder = folder
        self._make = partial(make_worker, folder.path) if make is None else make
        self._share = WaveShare() if share is None else share
        self._workers = workers
        self._seconds = seconds
        self._units = list(self._missing((Arm.TRUTH, *arms)))
        self._started = 0.0
        self._longest_s = 0.0

    def run(self, on_done: Callable[[WaveProgress], None]) -> None:
        """Until nothing is missing, or time is up. Raises TruthError, PoolError."""
        self._started = time.perf_counter()
        done = 0
        shares = [self._tasks(worker) for worker in range(self._workers)]
        with closing(pool_of(self._workers).run(self._make, shares)) as events:
            for event in events:
                if isinstance(event, Lost):
                    raise PoolError(f"{event.text}. What was finished before it is kept")
                if not isinstance(event, Done):
                    continue
                if isinstance(event.result, WrongTruth):
                    raise TruthError(event.result.reason)
                done += 1
                on_done(
                    WaveProgress(
                        shown=event.result,
                        done=done,
                        units=len(self._units),
                        elapsed_s=time.perf_counter() - self._started,
                    )
                )

    def _missing(self, arms: Sequence[Arm]) -> Iterator[WaveTask]:
        for wave in range(self._folder.plan.waves):
            if self._share.has(wave):
                yield from (WaveTask(arm, wave) for arm in arms if not self._folder.has(arm, wave))

    def _tasks(self, worker: int) -> Iterator[Task[WaveTask]]:
        """Of every so many-th wave. The first one always: every call gets further."""
        places = dict.fromkeys(unit.wave for unit in self._units)
        mine = {wave for place, wave in enumerate(places) if place % self._workers == worker}
        for number, unit in enumerate(unit for unit in self._units if unit.wave in mine):
            begun = time.perf_counter()
            if number > 0 and self._is_late(begun - self._started):
                return
            yield Task(name=f"{unit.arm} wave {unit.wave}", content=unit)
            self._longest_s = max(self._longest_s, time.perf_counter() - begun)

    def _is_late(self, elapsed_s: float) -> bool:
        return self._seconds is not None and elapsed_s + self._longest_s > self._seconds


def _shown_truth(truth: TruthWave) -> WaveSummary:
    return WaveSummary(
        arm=Arm.TRUTH,
        wave=truth.wave,
        generations=len(truth.tokens),
        tokens=sum(map(len, truth.tokens)),
        seconds=truth.seconds,
        wrong=0,
        stopped=None,
    )


def _shown_arm(found: ArmWave) -> WaveSummary:
    return WaveSummary(
        arm=found.arm,
        wave=found.wave,
        generations=len(found.lengths),
        tokens=sum(found.lengths),
        seconds=found.seconds,
        wrong=found.wrong,
        stopped=found.stopped,
    )
