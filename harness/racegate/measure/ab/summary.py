"""From finished waves to the figures of the comparison."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from racegate.engine.state.tracked import Finish
from racegate.measure.ab.folder import Folder, missing
from racegate.measure.ab.held import HeldRun
from racegate.measure.ab.waves import ArmWave, TruthWave
from racegate.measure.ab.workload import AbError, AbSpec, Arm, engine_of

SCHEMA = "racegate.ab/1"
SHORT = (32, 64, 128, 256)
# What was reported in public of one evaluation, before and after the repair.
PUBLISHED = {
    "generations": 20_480,
    "limit": 64,
    "below_limit_unpatched": 7,
    "below_limit_patched": 0,
}


class Lengths(msgspec.Struct, frozen=True, kw_only=True):
    """How long some generations are.

    tokens: of all together; median: of the lengths
    below: length -> how many are shorter; ends: finish -> how many
    """

    tokens: int
    median: float
    below: dict[str, int]
    ends: dict[str, int]


class Stop(msgspec.Struct, frozen=True, kw_only=True):
    """An engine that broke off, or did not come to its end.

    wave: its number; message: why; lost: generations that were not finished
    """

    wave: int
    message: str
    lost: int


class ArmReport(msgspec.Struct, frozen=True, kw_only=True):
    """One arm against the truth of the same generations.

    arm: the engine; lost: not finished when their engine broke off; they count nowhere else
    wrong: tokens differ from the truth; shorter, longer: wrong ones that differ in number too
    first_wrong_median: the place of the first wrong token, in the middle one of the wrong ones
    found: lengths of what it delivered; truth: lengths of the same generations in the truth
    tokens_per_second: of one engine, without its set-up
    stops: engines that did not come to their end
    """

    arm: Arm
    fault: str | None
    config: dict[str, object]
    waves: int
    generations: int
    lost: int
    wrong: int
    shorter: int
    longer: int
    first_wrong_median: float | None
    found: Lengths
    truth: Lengths
    steps: int
    seconds: float
    setup_seconds: float
    tokens_per_second: float
    counters: dict[str, int]
    stops: tuple[Stop, ...]


class TruthReport(msgspec.Struct, frozen=True, kw_only=True):
    """The truth. checked: generations that equal plain decoding on the CPU
    lengths: of all of them
    """

    config: dict[str, object]
    waves: int
    generations: int
    checked: int
    lengths: Lengths
    steps: int
    seconds: float
    setup_seconds: float
    tokens_per_second: float


class AbReport(msgspec.Struct, frozen=True, kw_only=True):
    """All arms beside the truth.

    plan: what all arms have in common; truth: what they are compared with; arms: one by one
    held: faults under the holds of their witnesses; published: figures of one public evaluation
    missing: waves not run; environments: all met
    """

    schema: str
    plan: AbSpec
    truth: TruthReport
    arms: tuple[ArmReport, ...]
    held: tuple[HeldRun, ...]
    published: dict[str, int]
    missing: int
    environments: tuple[dict[str, str], ...]

    @property
    def is_right(self) -> bool:
        """Whether every engine without a fault delivered the truth."""
        sound = [arm for arm in self.arms if arm.fault is None]
        return not any(arm.wrong or arm.lost for arm in sound)


def summarise(folder: Folder, arms: Sequence[Arm]) -> AbReport:
    """What a folder holds of these arms."""
    truths = {truth.wave: truth for truth in folder.truths()}
    waves = {arm: list(folder.waves(arm)) for arm in arms}
    met = [truth.environment for truth in truths.values()]
    met += [wave.environment for found in waves.values() for wave in found]
    return AbReport(
        schema=SCHEMA,
        plan=folder.plan,
        truth=_truth_report(folder.plan, list(truths.values())),
        arms=tuple(_arm_report(folder.plan, arm, waves[arm], truths) for arm in arms),
        held=folder.held(),
        published=PUBLISHED,
        missing=missing(folder, (Arm.TRUTH, *arms)),
        environments=tuple(dict(items) for items in sorted({tuple(one.items()) for one in met})),
    )


def _truth_report(plan: AbSpec, truths: Sequence[TruthWave]) -> TruthReport:
    pairs = [
        (len(tokens), finish)
        for truth in truths
        for tokens, finish in zip(truth.tokens, truth.finished, strict=True)
    ]
    lengths = _lengths(pairs)
    seconds = sum(truth.seconds for truth in truths)
    return TruthReport(
        config=msgspec.to_builtins(engine_of(plan, Arm.TRUTH)),
        waves=len(truths),
        generations=len(pairs),
        checked=sum(truth.checked for truth in truths),
        lengths=lengths,
        steps=sum(truth.steps for truth in truths),
        seconds=seconds,
        setup_seconds=sum(truth.setup_seconds for truth in truths),
        tokens_per_second=lengths.tokens / seconds if seconds else 0.0,
    )


def _arm_report(
    plan: AbSpec, arm: Arm, waves: Sequence[ArmWave], truths: dict[int, TruthWave]
) -> ArmReport:
    for wave in waves:
        if wave.wave not in truths:
            raise AbError(f"the truth of wave {wave.wave} is missing: run it again")
    ends = [_Ends(wave, truths[wave.wave]) for wave in waves]
    finished = [generation for end in ends for generation in end.finished]
    wrong = [one for one in finished if one.first_wrong >= 0]
    found = _lengths((one.length, one.finish) for one in finished)
    seconds = sum(wave.seconds for wave in waves)
    counters: Counter[str] = Counter()
    for wave in waves:
        counters.update(wave.counters)
    return ArmReport(
        arm=arm,
        fault=None if arm.fault is None else arm.fault.name,
        config=msgspec.to_builtins(engine_of(plan, arm)),
        waves=len(waves),
        generations=sum(len(wave.lengths) for wave in waves),
        lost=sum(end.lost for end in ends),
        wrong=len(wrong),
        shorter=sum(one.length < one.true_length for one in wrong),
        longer=sum(one.length > one.true_length for one in wrong),
        first_wrong_median=_median([one.first_wrong for one in wrong]),
        found=found,
        truth=_lengths((one.true_length, one.true_finish) for one in finished),
        steps=sum(wave.steps for wave in waves),
        seconds=seconds,
        setup_seconds=sum(wave.setup_seconds for wave in waves),
        tokens_per_second=found.tokens / seconds if seconds else 0.0,
        counters=dict(counters),
        stops=tuple(stop for end in ends if (stop := end.stop) is not None),
    )


class _Generation(msgspec.Struct, frozen=True):
    length: int
    finish: Finish
    first_wrong: int
    true_length: int
    true_finish: Finish


class _Ends:
    """The generations of a wave beside their truth."""

    def __init__(self, wave: ArmWave, truth: TruthWave) -> None:
        true_lengths = tuple(len(tokens) for tokens in truth.tokens)
        columns = (wave.lengths, wave.finished, wave.first_wrong, true_lengths, truth.finished)
        every = [_Generation(*values) for values in zip(*columns, strict=True)]
        self.finished = [one for one in every if one.finish is not Finish.UNFINISHED]
        self.lost = len(every) - len(self.finished)
        self._wave = wave

    @property
    def stop(self) -> Stop | None:
        """Why generations were lost, if any were, or the engine broke off without that."""
        message = self._wave.stopped
        if message is None and not self.lost:
            return None
        message = message or f"not at its end after {self._wave.steps} steps"
        return Stop(wave=self._wave.wave, message=message, lost=self.lost)


def _lengths(pairs: Iterable[tuple[int, Finish]]) -> Lengths:
    every = list(pairs)
    lengths = [length for length, _ in every]
    ends = Counter(finish.value for _, finish in every)
    return Lengths(
        tokens=sum(lengths),
        median=statistics.median(lengths) if lengths else 0.0,
        below={str(limit): sum(length < limit for length in lengths) for limit in SHORT},
        ends={finish.value: ends[finish.value] for finish in Finish if ends[finish.value]},
    )


def _median(places: Sequence[int]) -> float | None:
    return statistics.median(places) if places else None
