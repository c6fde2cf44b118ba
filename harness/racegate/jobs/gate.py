"""The gate: every scenario of a folder through the oracles, what must fail, the gate's own checks,
and one verdict.

Scenarios and witnesses are tasks of a pool; what comes out is the same for any number of workers,
in the order in which they were given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn, Protocol

import msgspec

from racegate.check.checker import Checker, Checkers
from racegate.check.repro.replay import replay
from racegate.check.repro.search import search
from racegate.check.selfcheck import (
    SelfCheck,
    TwiceRun,
    chosen_twice,
    everywhere,
    plant_canaries,
    together,
)
from racegate.explore.features.apart import PairCoverage, covered_apart
from racegate.explore.features.table import features_in
from racegate.faults.catalogue import find_fault
from racegate.faults.fault import Fault
from racegate.history.breakage import Breakage
from racegate.history.finding import Benign, Verdict, exit_code
from racegate.history.gates.known import Ratchet
from racegate.history.outcome import SCHEMA, RunResult, unaudited
from racegate.history.replayed import ReplayOutcome
from racegate.history.run import Run
from racegate.history.witness import Witness
from racegate.jobs.gather import gather
from racegate.jobs.pools.pool import Task
from racegate.jobs.pools.time_limit import TIMEOUT_S
from racegate.jobs.selection import nothing_selected, parse_selection
from racegate.jobs.stopping import StoppedError, done_of
from racegate.scenario.spec import OwnScenario

# Fewer are done before a process has started.
TASKS_EACH = 4


class GateStats(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over the scenarios."""

    scenarios: int
    steps: int
    ops: int
    conflicts: int
    findings: int
    schedules: int
    seconds: float


class MustFail(msgspec.Struct, frozen=True, kw_only=True):
    """A witness that has to show what it was recorded for.

    witness: path of its file; outcome: what it showed
    """

    witness: str
    fault: str | None
    expected_signature: str
    signature: str | None
    outcome: ReplayOutcome

    @property
    def is_missed(self) -> bool:
        """Whether it did not show it."""
        return self.outcome is not ReplayOutcome.REPRODUCED


class GateResult(msgspec.Struct, frozen=True, kw_only=True):
    """A whole gate.

    scenarios: every run; must_fail: witnesses that had to fail, empty without the option
    unmet: what no scenario exercised
    breakages: scenarios and witnesses that an error of the harness left undone; those of a run
        stand with the run
    benign: what BENIGN is for this gate
    baseline: beside the findings that are known, null without such a file
    pairs: of features, that the scenarios go through; empty with a fault
    """

    schema: str
    verdict: Verdict
    scenarios: tuple[RunResult, ...]
    must_fail: tuple[MustFail, ...]
    selfcheck: SelfCheck
    unmet: tuple[str, ...]
    stats: GateStats
    breakages: tuple[Breakage, ...] = ()
    benign: Benign = Benign.PASS
    baseline: Ratchet | None = None
    pairs: tuple[PairCoverage, ...] = ()

    @property
    def exit_code(self) -> int:
        """As for its scenarios; a witness that must fail and did not is a finding."""
        if self.verdict is Verdict.BROKEN_HARNESS:
            return 3
        if any(entry.is_missed for entry in self.must_fail):
            return 1
        known = self.baseline
        if known is None:
            verdicts = [self.verdict, *(result.verdict for result in self.scenarios)]
            return exit_code(verdicts, benign=self.benign)
        verdicts = [known.passed(result).verdict for result in self.scenarios]
        verdicts += [Verdict.INCONCLUSIVE] if self.unmet else []
        return known.code_of(exit_code(verdicts, benign=self.benign))


class ScenarioJudge(Protocol):
    """How a gate looks at a scenario. on_eager: is given the eager run"""

    def __call__(
        self, checker: Checker, fault: Fault | None, *, on_eager: Callable[[Run], None] = ...
    ) -> RunResult: ...


class GateJudge(msgspec.Struct, frozen=True, kw_only=True):
    """How the gate looks at a scenario. budget: schedules of the ladder; None: one eager run"""

    budget: int | None
    seed: int = 0
    is_audited: bool = True

    def __call__(
        self,
        checker: Checker,
        fault: Fault | None,
        *,
        on_eager: Callable[[Run], None] = lambda run: None,
    ) -> RunResult:
        """Raises BrokenHarnessError if there is not even an eager run."""
        audited = self.is_audited
        if self.budget is None:
            judged = checker.run_judged(fault=fault, is_audited=audited)
            on_eager(judged.run)
            result = judged.result
        else:
            result = search(
                checker,
                fault=fault,
                budget=self.budget,
                seed=self.seed,
                is_audited=audited,
                on_eager=on_eager,
            )
        return result if audited else unaudited(result)

    def command(self, path: Path, fault: str | None) -> str:
        """What looks at one scenario alone."""
        ladder = f"--explore ladder --budget {self.budget} --seed {self.seed}"
        options = ["" if self.budget is None else f" {ladder}"]
        options += ["" if self.is_audited else " --audit off"]
        options += ["" if fault is None else f" --fault {fault}"]
        return f"racegate run {path}{''.join(options)}"


class GateSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What goes through the gate, with the files it comes from."""

    scenarios: tuple[tuple[Path, OwnScenario], ...]
    must_fail: tuple[tuple[Path, Witness], ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Of all, in the order in which they are looked at."""
        scenarios = (scenario.name for _, scenario in self.scenarios)
        return (*scenarios, *(path.name for path, _ in self.must_fail))

    def selected(self, expression: str) -> GateSpec:
        """What an expression selects by name. Raises SelectionError if that is nothing."""
        selects = parse_selection(expression)
        found = GateSpec(
            scenarios=tuple(pair for pair in self.scenarios if selects(pair[1].name)),
            must_fail=tuple(pair for pair in self.must_fail if selects(pair[0].name)),
        )
        if not found.names:
            raise nothing_selected(expression, self.names)
        return found

    def among(self, changed: frozenset[Path]) -> GateSpec:
        """The scripts and witnesses that changed; all of them if anything else did but pages: a
        change of a runner, a log or the harness may show anywhere.
        """
        files = {path.resolve() for path, _ in (*self.scenarios, *self.must_fail)}
        if any(path not in files and path.suffix != ".md" for path in changed):
            return self
        return GateSpec(
            scenarios=tuple(pair for pair in self.scenarios if pair[0].resolve() in changed),
            must_fail=tuple(pair for pair in self.must_fail if pair[0].resolve() in changed),
        )


class _Looked(msgspec.Struct, frozen=True, kw_only=True):
    """A scenario looked at. selfcheck: of its second run, if it was run twice

    features: of its eager run, none with a fault
    """

    result: RunResult
    selfcheck: SelfCheck
    features: frozenset[str]


class _ScenarioTask(msgspec.Struct, frozen=True, kw_only=True):
    path: Path
    scenario: OwnScenario
    is_run_twice: bool


class _WitnessTask(msgspec.Struct, frozen=True, kw_only=True):
    path: Path
    witness: Witness


_GateTask = _ScenarioTask | _WitnessTask
_GateAnswer = _Looked | MustFail | SelfCheck


class GateWorker:
    """Looks at scenarios and at witnesses. The canaries come last: what went before may have broken
    something.
    """

    def __init__(self, look: ScenarioJudge, fault: Fault | None) -> None:
        self._look = look
        self._fault = fault
        self._checkers = Checkers()

    def work(self, task: _GateTask) -> _GateAnswer:
        """One scenario, or one witness."""
        if isinstance(task, _WitnessTask):
            return self._replayed(task.path, task.witness)
        checker = self._checkers.of(task.scenario, replay=f"racegate run {task.path}")
        first = TwiceRun(checker, self._fault) if task.is_run_twice else None
        eager: list[Run] = []
        result = self._look(checker, self._fault, on_eager=eager.append)
        return _Looked(
            result=result,
            selfcheck=SelfCheck() if first is None else first.again(),
            features=self._features(checker, eager),
        )

    def _features(self, checker: Checker, eager: Sequence[Run]) -> frozenset[str]:
        """What a run reached; one that a defect turned says nothing of it."""
        if self._fault is not None or not eager:
            return frozenset()
        return features_in(checker.scenario, eager[0])

    def _replayed(self, path: Path, witness: Witness) -> MustFail:
        command = f"racegate replay {path}"
        result = replay(witness, times=1, command=command, checkers=self._checkers)
        return MustFail(
            witness=str(path),
            fault=witness.fault,
            expected_signature=witness.signature,
            signature=result.signature,
            outcome=result.outcome,
        )

    def end(self) -> SelfCheck:
        """Whether this worker would have found what is planted."""
        return plant_canaries(self._look)


def make_worker(look: ScenarioJudge, fault: str | None, number: int) -> GateWorker:
    """In a worker process; every worker is like the other. Raises FaultError."""
    return GateWorker(look, None if fault is None else find_fault(fault))


def run_gate(
    given: GateSpec,
    *,
    look: ScenarioJudge,
    fault: str | None = None,
    seed: int = 0,
    workers: int = 1,
    timeout_s: float = TIMEOUT_S,
    on_done: Callable[[str], None] = lambda name: None,
) -> GateResult:
    """Looks at every scenario and every witness, and calls back with the name of each. What breaks
    one of them leaves the others.

    Raises StoppedError if it is told to stop: its one result is what is known.

    look: with more than one worker it is pickled; fault: its name; timeout_s: for each, 0 is no
    limit
    """
    found = gather(
        partial(make_worker, look, fault),
        _tasks(given, look, fault, seed),
        workers=min(workers, -(-len(given.names) // TASKS_EACH)),
        timeout_s=timeout_s,
        on_done=on_done,
    )
    looked = [answer for answer in found.results if isinstance(answer, _Looked)]
    missed = [answer for answer in found.results if isinstance(answer, MustFail)]
    canaries = everywhere([check for check in found.last if isinstance(check, SelfCheck)])
    selfcheck = together((*(one.selfcheck for one in looked), canaries))
    result = _as_result([one.result for one in looked], missed, selfcheck, found.breakages)
    if fault is None:
        pairs = covered_apart(one.features for one in looked)
        result = msgspec.structs.replace(result, pairs=pairs)
    return result if found.stop is None else _cut_short(result, found.stop, found.left)


def _cut_short(result: GateResult, stop: KeyboardInterrupt, left: Sequence[str]) -> NoReturn:
    """Raises StoppedError, whose result is what is known: of the rest nothing is, and of the
    canaries neither.
    """
    done = done_of(len(result.scenarios) + len(result.must_fail), left)
    verdict = _worst([result.verdict, Verdict.INCONCLUSIVE])
    unmet = (*result.unmet, f"the gate was stopped: {done}")
    known = msgspec.structs.replace(result, verdict=verdict, unmet=unmet)
    go_on = "the same command, or -k with words of the names that are left"
    raise StoppedError(stop, done=done, go_on=go_on, results=[known]) from stop


def _tasks(
    given: GateSpec, look: ScenarioJudge, fault: str | None, seed: int
) -> Iterable[Task[_GateTask]]:
    twice = chosen_twice([scenario.name for _, scenario in given.scenarios], seed=seed)
    for path, scenario in given.scenarios:
        is_run_twice = scenario.name in twice
        task = _ScenarioTask(path=path, scenario=scenario, is_run_twice=is_run_twice)
        command = look.command(path, fault) if isinstance(look, GateJudge) else ""
        yield Task(name=scenario.name, content=task, command=command)
    for path, witness in given.must_fail:
        content = _WitnessTask(path=path, witness=witness)
        yield Task(name=path.name, content=content, command=f"racegate replay {path}")


def _as_result(
    results: Sequence[RunResult],
    must_fail: Sequence[MustFail],
    selfcheck: SelfCheck,
    breakages: tuple[Breakage, ...],
) -> GateResult:
    unmet = _unmet(results)
    verdicts = [result.verdict for result in results]
    if not selfcheck.is_sound or breakages:
        verdicts.append(Verdict.BROKEN_HARNESS)
    if unmet or any(entry.is_missed for entry in must_fail):
        verdicts.append(Verdict.INCONCLUSIVE)
    return GateResult(
        schema=SCHEMA,
        verdict=_worst(verdicts),
        scenarios=tuple(results),
        must_fail=tuple(must_fail),
        selfcheck=selfcheck,
        unmet=unmet,
        breakages=breakages,
        stats=GateStats(
            scenarios=len(results),
            steps=sum(result.stats.steps for result in results),
            ops=sum(result.stats.ops for result in results),
            conflicts=sum(result.stats.conflicts for result in results),
            findings=sum(len(result.findings) for result in results),
            schedules=sum(result.stats.schedules for result in results),
            seconds=sum(result.stats.seconds for result in results),
        ),
    )


def _unmet(results: Sequence[RunResult]) -> tuple[str, ...]:
    """What the gate as a whole did not exercise: without overlap nothing asynchronous was tried."""
    if any(result.stats.overlapped_ops for result in results):
        return ()
    return ("overlapped_ops: 0 in all scenarios: nothing ran while the host prepared a later step",)


# What outweighs what in the verdict of many.
_ORDER = (
    Verdict.BROKEN_HARNESS,
    Verdict.DEADLOCK,
    Verdict.DIVERGENT,
    Verdict.CONFLICT,
    Verdict.INCONCLUSIVE,
    Verdict.BENIGN,
    Verdict.PROVED,
)


def _worst(verdicts: list[Verdict]) -> Verdict:
    return min(verdicts, key=_ORDER.index, default=Verdict.INCONCLUSIVE)
