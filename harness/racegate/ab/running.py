"""A call of `racegate ab`: the waves that a folder lacks, one after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import msgspec

from racegate.ab.folder import Folder
from racegate.ab.waves import ArmWave, Site, TruthWave, rehearse, run_arm, run_truth
from racegate.ab.workload import AbError, Arm


class Part(msgspec.Struct, frozen=True):
    """Part `index` of `count` (from 1): every count-th wave. Parts may run beside each other."""

    index: int = 1
    count: int = 1

    def has(self, wave: int) -> bool:
        return wave % self.count == self.index - 1


def parse_part(text: str) -> Part:
    """`2/4` is the second of four parts. Raises AbError."""
    index, _, count = text.partition("/")
    if not (index.isdecimal() and count.isdecimal()) or not 1 <= int(index) <= int(count):
        raise AbError(f"cannot read the part {text!r}: write 2/4 for the second of four")
    return Part(int(index), int(count))


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """What to show after a wave. done, units: waves of arms, of this call; left_s: an estimate."""

    arm: Arm
    wave: int
    generations: int
    tokens: int
    seconds: float
    wrong: int
    stopped: str | None
    done: int
    units: int
    elapsed_s: float

    @property
    def left_s(self) -> float:
        return self.elapsed_s / self.done * (self.units - self.done)


class Runner:
    """Runs what is missing, wave by wave, so that at any time all arms have had the same requests.

    seconds: no wave is begun that would probably end later than that; None is no bound
    """

    def __init__(
        self,
        folder: Folder,
        site: Site,
        arms: Sequence[Arm],
        *,
        environment: dict[str, str],
        part: Part | None = None,
        seconds: float | None = None,
    ) -> None:
        self._folder = folder
        self._site = site
        self._arms = (Arm.TRUTH, *arms)
        self._environment = environment
        self._part = Part() if part is None else part
        self._seconds = seconds
        self._rehearsed: set[Arm] = set()
        self._longest_s = 0.0

    def run(self, on_done: Callable[[Done], None]) -> None:
        """Until nothing is missing, or time is up."""
        started = time.perf_counter()
        units = list(self._missing())
        for number, (arm, wave) in enumerate(units, start=1):
            begun = time.perf_counter()
            # The first one always: every call gets further.
            if number > 1 and self._is_late(begun - started):
                return
            finished = self._run_one(arm, wave)
            now = time.perf_counter()
            self._longest_s = max(self._longest_s, now - begun)
            on_done(_done(arm, finished, done=number, units=len(units), elapsed_s=now - started))

    def _missing(self) -> Iterator[tuple[Arm, int]]:
        for wave in range(self._folder.plan.waves):
            if self._part.has(wave):
                yield from ((arm, wave) for arm in self._arms if not self._folder.has(arm, wave))

    def _is_late(self, elapsed_s: float) -> bool:
        return self._seconds is not None and elapsed_s + self._longest_s > self._seconds

    def _run_one(self, arm: Arm, wave: int) -> TruthWave | ArmWave:
        folder, plan = self._folder, self._folder.plan
        if arm not in self._rehearsed:
            self._rehearsed.add(arm)
            rehearse(self._site, plan, arm)
        if arm is Arm.TRUTH:
            truth = run_truth(self._site, plan, wave, self._environment)
            folder.save_truth(truth)
            return truth
        known = folder.truth(wave)
        assert known is not None, "the truth of a wave is run before its arms"
        finished = run_arm(self._site, plan, arm, known, self._environment)
        folder.save_wave(finished)
        return finished


def _done(
    arm: Arm, finished: TruthWave | ArmWave, *, done: int, units: int, elapsed_s: float
) -> Done:
    if isinstance(finished, TruthWave):
        lengths = tuple(len(tokens) for tokens in finished.tokens)
        wrong, stopped = 0, None
    else:
        lengths, wrong, stopped = finished.lengths, finished.wrong, finished.stopped
    return Done(
        arm=arm,
        wave=finished.wave,
        generations=len(lengths),
        tokens=sum(lengths),
        seconds=finished.seconds,
        wrong=wrong,
        stopped=stopped,
        done=done,
        units=units,
        elapsed_s=elapsed_s,
    )
