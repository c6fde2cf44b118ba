"""Self-checks: faults planted to be found, and runs made twice that have to be the same.

A gate that finds nothing says something only if it would have found something. So every gate and
every campaign also looks at canaries: a small scenario with a known fault, through the same
function as everything else. Together they need every oracle. An oracle that was broken, or is not
asked any more, loses a canary, and the run ends as broken whatever else it saw.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest

import msgspec
import numpy as np

from racegate.check.checker import Checker
from racegate.check.findings import is_of_the_end
from racegate.device.virtual.compiled import (
    COMPILED_VARIABLE,
    CorePart,
    refused_core,
    why_python,
)
from racegate.faults.catalogue import find_fault
from racegate.faults.fault import Fault
from racegate.history.finding import FindingKind
from racegate.history.observe import Observation
from racegate.history.outcome import RunResult
from racegate.history.run import Run
from racegate.history.schedule import EAGER, Schedule
from racegate.scenario.draws import draw
from racegate.scenario.settings import CacheMode, EngineSpec, TransferMode
from racegate.scenario.spec import OwnScenario, Preempt, Request, Rotate

# Judges a scenario with a fault, or with none, the way a job does with all of its own.
JobJudge = Callable[[Checker, Fault | None], RunResult]

# One run of so many is made twice.
TWICE_OF = 20


class SelfCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What a job found out about itself.

    canaries: planted faults looked for; canaries_found: those that showed all they had to
    double_runs: runs made twice; mismatches: those that were not the same
    both_cores: of them, made in C at first and in Python then
    problems: what is wrong with the harness, in words
    """

    canaries: int = 0
    canaries_found: int = 0
    double_runs: int = 0
    mismatches: int = 0
    both_cores: int = 0
    problems: tuple[str, ...] = ()

    @property
    def is_sound(self) -> bool:
        """Whether what the job says counts."""
        return self.canaries == self.canaries_found and not self.mismatches


def together(checks: Iterable[SelfCheck]) -> SelfCheck:
    """The sum of several."""
    total = SelfCheck()
    for check in checks:
        total = SelfCheck(
            canaries=total.canaries + check.canaries,
            canaries_found=total.canaries_found + check.canaries_found,
            double_runs=total.double_runs + check.double_runs,
            mismatches=total.mismatches + check.mismatches,
            both_cores=total.both_cores + check.both_cores,
            problems=total.problems + check.problems,
        )
    return total


def everywhere(checks: Sequence[SelfCheck]) -> SelfCheck:
    """The canaries of all workers: one is found if every worker has found it."""
    if not checks:
        return SelfCheck()
    return SelfCheck(
        canaries=max(check.canaries for check in checks),
        canaries_found=min(check.canaries_found for check in checks),
        problems=tuple(dict.fromkeys(text for check in checks for text in check.problems)),
    )


class Canary(msgspec.Struct, frozen=True, kw_only=True):
    """A planted fault. shows: kinds of finding that have to be seen, whatever else is."""

    fault: str
    cache_mode: CacheMode
    shows: tuple[FindingKind, ...]


# The first is invisible to all oracles but the ordering one; the second is a race that has gone
# wrong; the third no race at all; the values of the last are right. Between them every oracle has
# something to see.
CANARIES = (
    Canary(
        fault="accepted-read-before-copy",
        cache_mode=CacheMode.ALIGN,
        shows=(FindingKind.CONFLICT,),
    ),
    Canary(
        fault="accepted-double-remap",
        cache_mode=CacheMode.ALIGN,
        shows=(FindingKind.CONFLICT, FindingKind.OWNERSHIP, FindingKind.DIVERGENCE),
    ),
    Canary(
        fault="correction-partial-fields",
        cache_mode=CacheMode.NONE,
        shows=(FindingKind.DIVERGENCE, FindingKind.INVARIANT, FindingKind.LOSS),
    ),
    Canary(
        fault="store-posted-after-reuse",
        cache_mode=CacheMode.OFFLOAD,
        shows=(FindingKind.PAGE,),
    ),
)


def canary_scenario(cache_mode: CacheMode) -> OwnScenario:
    """Two decoding rows that change places once while their counts are in flight; with offload a
    request whose blocks go on while its prefix is to be stored.
    """
    if cache_mode is CacheMode.OFFLOAD:
        return _preempted_store()
    requests = tuple(
        Request(name=name, arrive=0, prompt=prompt, max_tokens=7, accepts=accepts)
        for name, prompt, accepts in (
            ("A", (3, 1, 4, 1, 5), (4, 1)),
            ("B", (2, 7, 1, 8), (1, 3)),
        )
    )
    return OwnScenario(
        name="canary",
        title="two decoding rows change places",
        engine=EngineSpec(cache_mode=cache_mode),
        requests=requests,
        events=(Rotate(step=2, requests=("A", "B")),),
    )


def _preempted_store() -> OwnScenario:
    first = Request(name="A", arrive=0, prompt=(3, 1, 4, 1, 5, 9, 2, 6, 5), max_tokens=3)
    second = Request(name="B", arrive=1, prompt=(2, 7, 1, 8, 2, 8, 1, 8, 2, 8), max_tokens=3)
    return OwnScenario(
        name="canary-offload",
        title="blocks go on to the next request while a NIC is to store them",
        engine=EngineSpec(
            cache_mode=CacheMode.OFFLOAD,
            transfers=TransferMode.NIC,
            prefill_chunk_max=8,
            blocks=5,
            state_blocks=10,
            model_len_max=16,
        ),
        requests=(first, second),
        events=(Preempt(step=1, request="A"),),
    )


def racing_fault() -> Fault:
    """That of the first canary, an edge at a wrong place."""
    return find_fault(CANARIES[0].fault)


def plant_canaries(judge: JobJudge) -> SelfCheck:
    """Looks at every canary as a job looks at its scenarios."""
    modes = {canary.cache_mode for canary in CANARIES}
    checkers = {mode: Checker(canary_scenario(mode)) for mode in modes}
    problems = [
        text for canary in CANARIES if (text := _missed(canary, checkers[canary.cache_mode], judge))
    ]
    return SelfCheck(
        canaries=len(CANARIES),
        canaries_found=len(CANARIES) - len(problems),
        problems=tuple(problems),
    )


def _missed(canary: Canary, checker: Checker, judge: JobJudge) -> str | None:
    found = judge(checker, find_fault(canary.fault)).findings
    # That a run ends elsewhere follows from its values: who looks at those has to see it first.
    seen = {finding.kind for finding in found if not is_of_the_end(finding)}
    lacking = ", ".join(kind for kind in canary.shows if kind not in seen)
    if not lacking:
        return None
    return (
        f"canary {canary.fault}: planted and not seen: {lacking}; an oracle is broken or was not "
        "asked, so nothing that this run says counts"
    )


def chosen_twice(names: Sequence[str], *, seed: int) -> frozenset[str]:
    """The share of scenarios that is run twice: one in `TWICE_OF`, and at least one."""
    count = -(-len(names) // TWICE_OF)
    ranked = sorted(names, key=lambda name: (draw(seed, f"twice:{name}", 0), name))
    return frozenset(ranked[:count])


def is_run_twice(seed: int, index: int) -> bool:
    """Whether a campaign runs its scenario of that index twice: the first, one in `TWICE_OF`."""
    return index == 0 or draw(seed, "twice", index) % TWICE_OF == 0


class BoundaryDigest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The hash of one field at one boundary."""

    step: int
    boundary: str
    field: str
    digest: bytes


def boundary_digests(observations: Sequence[Observation]) -> list[BoundaryDigest]:
    """Every boundary of a run, field by field."""
    return [
        BoundaryDigest(
            step=observation.step,
            boundary=str(observation.boundary),
            field=field,
            digest=_digest(observation.values[field]),
        )
        for observation in observations
        for field in sorted(observation.values)
    ]


def _digest(value: object) -> bytes:
    if isinstance(value, np.ndarray):
        content = f"{value.dtype}{value.shape}".encode() + value.tobytes()
    else:
        content = msgspec.json.encode(value, order="sorted")
    return hashlib.blake2b(content, digest_size=16).digest()


class TwiceRun:
    """A scenario run once before the job looks at it, and once after: the same, or something in the
    harness remembers or draws. What is in C does its part in the first run, not in the second: the
    same too, or it is not what its Python says.
    """

    def __init__(
        self, checker: Checker, fault: Fault | None, *, schedule: Schedule = EAGER
    ) -> None:
        self._checker = checker
        self._fault = fault
        self._schedule = schedule
        self._first = self._run()

    def _run(self) -> Run:
        return self._checker.execute(fault=self._fault, schedule=self._schedule)

    def again(self) -> SelfCheck:
        """Runs it again and compares every boundary, and what was issued in which order."""
        both_cores = int(CorePart.KERNELS not in why_python())
        with refused_core():
            difference = difference_of(self._first, self._run())
        if difference is None:
            return SelfCheck(double_runs=1, both_cores=both_cores)
        what = "two runs of the same schedule"
        if both_cores and difference_of(self._first, self._run()) is None:
            what = f"a run in C and one in Python (`racegate --no-core`, {COMPILED_VARIABLE}=0)"
        text = f"{self._checker.scenario.name}: {what} differ: {difference}"
        return SelfCheck(double_runs=1, mismatches=1, both_cores=both_cores, problems=(text,))


def difference_of(first: Run, second: Run) -> str | None:
    """Where two runs of one schedule differ first, in words; None if nowhere."""
    pairs = zip_longest(boundary_digests(first.observations), boundary_digests(second.observations))
    for one, other in pairs:
        if one != other:
            place = one if one is not None else other
            return f"step {place.step}, boundary {place.boundary}, field {place.field}"
    if first.trace.events != second.trace.events:
        return "the operations issued, or the orders between them (every value is the same)"
    return None
