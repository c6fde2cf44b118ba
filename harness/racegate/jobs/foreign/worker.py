"""A campaign's worker on a target that is not ours: opened once in the worker's process, and judged
with one drawn scenario after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack

import msgspec

from racegate.check.repro.minimise import minimise, smallest_scenario
from racegate.check.repro.minimise import witness_of as own_witness
from racegate.check.selfcheck import SelfCheck
from racegate.faults.catalogue import find_fault
from racegate.history.finding import Benign, counted_finding
from racegate.history.schedule import parse_schedule
from racegate.history.witness import SealedWitness, Witness, sealed
from racegate.interpose.errors import BadInput
from racegate.jobs.foreign.opened import (
    OpenTarget,
    Script,
    Subject,
    TargetOptions,
    TargetResult,
    open_target,
)
from racegate.jobs.generated import (
    NOT_RUN,
    NOTHING_HAPPENED,
    Answer,
    CampaignSpec,
    GeneratedFinding,
    MinimisedFinding,
    Report,
)
from racegate.jobs.pools.pool import SayAlive, Worker
from racegate.jobs.stores.witnesses import found_at, scenario_in
from racegate.scenario.spec import OwnScenario, Scenario
from racegate.targets.adapters.witness import AdapterWitness
from racegate.targets.common.witnesses.witness import ReleaseWitness
from racegate.targets.program.launch import open_device
from racegate.targets.program.result import ProgramResult
from racegate.targets.program.workflow.replay import smaller_program
from racegate.targets.program.workflow.witness import ProgramWitness

# Scenarios that are tried to make one smaller: each takes all its landings again.
TRIES_MAX = 40
# Draws a scenario from the seed and its index.
DrawScenario = Callable[[int, int], OwnScenario]


class TargetWorker:
    """See pool.Worker. known: signatures that need no witness any more"""

    def __init__(
        self,
        subject: Subject,
        options: TargetOptions,
        draw: DrawScenario,
        spec: CampaignSpec,
        known: Collection[str],
    ) -> None:
        self._draw = draw
        self._spec = spec
        # By the lowest scenario that showed it: one that is handed back may be lower.
        self._seen = dict.fromkeys(known, -1)
        self._opened = ExitStack()
        self._target = self._opened.enter_context(open_target(subject, options))
        self._unsaid = self._target.selfcheck

    def work(self, task: int | GeneratedFinding) -> Answer:
        """See `work_on`."""
        return self.work_on(task, lambda: None)

    def work_on(self, task: int | GeneratedFinding, say_alive: SayAlive) -> Answer:
        """One scenario, or the smallest that shows what one showed; each that is tried is a sign of
        life.
        """
        if isinstance(task, GeneratedFinding):
            small = smaller(self._target, task.witness, say_alive=say_alive)
            found = msgspec.structs.replace(task, **msgspec.structs.asdict(small))
            return MinimisedFinding(signature=task.signature, small=found)
        spec, scenario = self._spec, self._draw(self._spec.seed, task)
        shown = self._target.judge(scenario)
        report = report_of(spec.seed, task, shown, benign=spec.benign, seen=self._seen)
        if report.found is not None:
            self._seen[report.found.signature] = task
        check, self._unsaid = self._unsaid, SelfCheck()
        return msgspec.structs.replace(report, selfcheck=check)

    def end(self) -> Answer:
        """The target is closed."""
        self._opened.close()
        return self._unsaid


def report_of(
    seed: int,
    index: int,
    shown: TargetResult,
    *,
    benign: Benign = Benign.PASS,
    seen: Mapping[str, int] | None = None,
) -> Report:
    """As a campaign counts what a target showed. seen: by signature, the lowest scenario that
    showed it before, for which no witness is needed
    """
    result = shown.result
    counted = None
    if not result.refused:
        counted = counted_finding(result.verdict, result.findings, benign=benign)
    signature = None if counted is None else counted.signature
    settings = (NOT_RUN,) if result.refused else ()
    is_served = not isinstance(result, ProgramResult)  # a program delivers no tokens
    if is_served and not (result.refused or result.stats.delivered or signature):
        settings = (NOTHING_HAPPENED,)
    found = None
    if signature is not None and (seen or {}).get(signature, index) >= index:
        found = _found(seed, index, signature, shown.witnesses)
    return Report(
        index=index,
        schedules=result.stats.schedules,
        verdict=result.verdict,
        exercised=result.stats.exercised,
        settings=settings,
        features=(),
        signature=signature,
        found=found,
        selfcheck=SelfCheck(),
        breakages=result.breakages,
    )


def _found(
    seed: int, index: int, signature: str, witnesses: Collection[SealedWitness]
) -> GeneratedFinding | None:
    """None for what no witness can show again: a race of a program that no landing has shown."""
    for witness in witnesses:
        if witness.known_as == signature:
            return GeneratedFinding(
                signature=signature,
                index=index,
                witness=found_at(witness, seed, index),
                runs=0,
                is_minimal=False,
            )
    return None


class ShrunkWitness(msgspec.Struct, frozen=True, kw_only=True):
    """A witness in the smallest scenario that shows it. runs: scenarios tried; is_minimal: nothing
    can be left out
    """

    witness: SealedWitness
    runs: int
    is_minimal: bool


def smaller(
    target: OpenTarget,
    witness: SealedWitness,
    *,
    tries_max: int = TRIES_MAX,
    say_alive: SayAlive = lambda: None,
) -> ShrunkWitness:
    """Leaves out of a scenario what its finding does not need. tries_max: scenarios tried at most,
    each with its landings; say_alive: is called before each
    """
    small = witness

    def still_fails(script: Script) -> bool:
        nonlocal small
        say_alive()
        shown = target.shows(small, script)
        small = shown or small
        return shown is not None

    runs, is_minimal = 0, True
    match scenario_in(witness):
        case OwnScenario() as script:
            own = smallest_scenario(script, still_fails, runs_max=tries_max)
            runs, is_minimal = own.runs, own.is_minimal
        case Scenario() as scenario:
            done = smallest_scenario(scenario, still_fails, runs_max=tries_max)
            runs, is_minimal = done.runs, done.is_minimal
    drawn = sealed(msgspec.structs.replace(small, drawn=witness.drawn))
    return ShrunkWitness(witness=drawn, runs=runs, is_minimal=is_minimal)


def smaller_of_any(
    witness: SealedWitness, options: TargetOptions, *, tries_max: int
) -> ShrunkWitness:
    """The same of a witness of any subject, which is opened for it. Of a program the holds alone
    can be fewer. Raises BadInput if nothing is found any more, or the subject cannot be opened.
    """
    if isinstance(witness, Witness):
        fault = None if witness.fault is None else find_fault(witness.fault)
        schedule = parse_schedule(witness.holds)
        try:
            small = minimise(witness.scenario, schedule, fault, runs_max=tries_max)
        except ValueError as error:
            raise BadInput(str(error)) from error
        found = own_witness(small, fault, title=witness.title, seed=witness.seed)
        return ShrunkWitness(witness=found, runs=small.runs, is_minimal=small.is_minimal)
    if isinstance(witness, ProgramWitness):
        with open_device() as device:
            fewer, runs, is_minimal = smaller_program(device, witness, runs_max=tries_max)
        return ShrunkWitness(witness=fewer, runs=runs, is_minimal=is_minimal)
    assert isinstance(witness, ReleaseWitness | AdapterWitness)
    subject = witness.subject
    assert isinstance(subject, Subject)
    with open_target(subject, options) as target:
        return smaller(target, witness, tries_max=tries_max)


def make_target_worker(
    subject: Subject,
    options: TargetOptions,
    draw: DrawScenario,
    spec: CampaignSpec,
    known: frozenset[str],
    number: int,
) -> Worker[int | GeneratedFinding, Answer]:
    """In a worker process; every worker is like the other."""
    return TargetWorker(subject, options, draw, spec, known)
