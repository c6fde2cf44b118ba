"""Fuzzing: generated scenarios until a bound, every finding minimised, known once, and written as
it comes.

Worker w of N looks at the scenarios w, w + N, ... of a seed. A finding depends on its index only,
so the same seed and worker count give the same findings as far as both runs got; what is reported
for a signature is its lowest index. Everything is kept in one folder: witnesses, and how far each
worker is. A second run with the folder goes on from there.

Each worker looks at the canaries before its first scenario and behind its last one; a share of
scenarios is run twice (`selfcheck`). A worker that has lost a canary ends the campaign.
"""

from __future__ import annotations

import multiprocessing
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.queues import Queue
from pathlib import Path
from queue import Empty
from typing import Any

import msgspec

from racegate.check.checker import Checker
from racegate.check.selfcheck import SelfCheck, TwiceRun, is_run_twice, plant_canaries, together
from racegate.check.sharing import SharedRuns
from racegate.explore.generate import generate, generate_holds, seeded
from racegate.faults.catalogue import find_fault
from racegate.faults.fault import Fault
from racegate.history.finding import Verdict, signature_of
from racegate.history.outcome import RunResult
from racegate.history.schedule import EAGER, Schedule, parse_schedule
from racegate.history.witness import Witness, WitnessError, load_witness, save
from racegate.jobs.orphans import is_orphan
from racegate.repro.minimise import minimise, witness_of
from racegate.repro.search import search
from racegate.scenario.errors import BadInputError
from racegate.scenario.spec import Scenario

STATE_FILE = "campaign.json"
STATE_SCHEMA = "racegate.campaign/1"
LADDER_BUDGET = 24
# A drawn scenario may be one in which every request is aborted before it starts.
NOTHING_HAPPENED = "nothing happened"
SAVE_EVERY_S = 2.0
# How long the workers may take for the scenario they are at, and their last canaries.
END_WITHIN_S = 120.0


class CampaignError(BadInputError):
    """A folder that belongs to another campaign, or cannot be used."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """seconds, scenarios: bounds, whichever is met first; None is no bound.

    holds_each: further schedules of each scenario, with a few holds drawn for each
    """

    seed: int
    workers: int
    fault: str | None
    seconds: float | None
    scenarios: int | None
    holds_each: int = 0


class CampaignState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a folder's campaign has done.

    done: scenarios looked at, by worker; exercised: how often each thing happened in all of them;
    scenarios_with: in how many it happened at all, and how many had each setting
    """

    schema: str
    seed: int
    workers: int
    fault: str | None
    done: tuple[int, ...]
    schedules: int
    verdicts: dict[str, int]
    exercised: dict[str, int]
    scenarios_with: dict[str, int]
    seconds: float
    selfcheck: SelfCheck = SelfCheck()


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """One signature. index: of the scenario, the lowest that showed it."""

    signature: str
    index: int
    witness: Witness
    runs: int
    is_minimal: bool


class Live(msgspec.Struct, frozen=True, kw_only=True):
    """What to show while it runs."""

    scenarios: int
    schedules: int
    seconds: float
    signatures: int
    last_new_s: float | None

    @property
    def schedules_per_second(self) -> float:
        return self.schedules / self.seconds if self.seconds else 0.0


class _Canaries(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """From a worker: its canaries looked at, before its first scenario or behind its last one."""

    worker: int
    is_last: bool
    selfcheck: SelfCheck


class _Report(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """From a worker: one scenario looked at."""

    worker: int
    index: int
    schedules: int
    verdict: str
    exercised: dict[str, int]
    settings: tuple[str, ...]
    found: Found | None
    selfcheck: SelfCheck


@dataclass(slots=True)
class _Totals:
    done: list[int]
    schedules: int = 0
    seconds: float = 0.0
    verdicts: Counter[str] = field(default_factory=Counter)
    exercised: Counter[str] = field(default_factory=Counter)
    scenarios_with: Counter[str] = field(default_factory=Counter)
    selfcheck: SelfCheck = field(default_factory=SelfCheck)

    def add(self, report: _Report) -> None:
        self.done[report.worker] += 1
        self.schedules += report.schedules
        self.verdicts[report.verdict] += 1
        self.exercised.update(report.exercised)
        self.scenarios_with.update(name for name, count in report.exercised.items() if count)
        self.scenarios_with.update(report.settings)


class Campaign:
    """Runs a plan in a folder.

    new: findings of this run; known: signatures from before; selfcheck: of this run
    unchecked: workers that ended without their last canaries
    """

    def __init__(self, plan: Plan, folder: Path) -> None:
        self._plan = plan
        self._folder = folder
        self.known = _known(folder)
        self.new: dict[str, Found] = {}
        self.selfcheck = SelfCheck()
        self.unchecked: set[int] = set()
        self._totals = _Totals(done=[0] * plan.workers)
        self._before = 0.0
        self._resume()

    def _resume(self) -> None:
        path = self._folder / STATE_FILE
        if not path.exists():
            return
        try:
            state = msgspec.json.decode(path.read_bytes(), type=CampaignState)
        except msgspec.DecodeError as error:
            raise CampaignError(f"{path}: cannot be read: {error}") from error
        wanted = (STATE_SCHEMA, self._plan.seed, self._plan.workers, self._plan.fault)
        if (state.schema, state.seed, state.workers, state.fault) != wanted:
            raise CampaignError(
                f"{path}: of a campaign with seed {state.seed}, {state.workers} workers, fault "
                f"{state.fault}; use the same or another folder"
            )
        self._before = state.seconds
        self._totals = _Totals(
            done=list(state.done),
            schedules=state.schedules,
            verdicts=Counter(state.verdicts),
            exercised=Counter(state.exercised),
            scenarios_with=Counter(state.scenarios_with),
            selfcheck=state.selfcheck,
        )

    def run(self, on_progress: Callable[[Live], None]) -> CampaignState:
        """Runs to a bound and returns what has been done in all runs together."""
        started = time.monotonic()
        context = multiprocessing.get_context("spawn")
        queue: Queue[bytes] = context.Queue()
        stop = context.Event()
        known = frozenset(self.known)
        self.unchecked = set(range(self._plan.workers))
        processes = [
            context.Process(
                target=_work, args=(self._plan, worker, start, known, queue, stop), daemon=True
            )
            for worker, start in enumerate(self._totals.done)
        ]
        for process in processes:
            process.start()
        try:
            self._collect(queue, stop, processes, started, on_progress)
        finally:
            stop.set()
            died = [p.name for p in processes if p.exitcode]
            for process in processes:
                process.terminate()
            state = self._save(time.monotonic() - started)
        if died:
            raise CampaignError(
                f"{', '.join(died)} ended with an error (above): scenarios are missing; what was "
                f"found is kept in {self._folder}, and the same command goes on from there"
            )
        return state

    def _collect(
        self,
        queue: Queue[bytes],
        stop: Any,
        processes: list[Any],
        started: float,
        on_progress: Callable[[Live], None],
    ) -> None:
        saved = started
        last_new: float | None = None
        end = None if self._plan.seconds is None else started + self._plan.seconds
        while True:
            now = time.monotonic()
            if end is not None and now >= end:
                stop.set()
                if now >= end + END_WITHIN_S:
                    return
            try:
                message = queue.get(timeout=0.2)
            except Empty:
                if not any(process.is_alive() for process in processes) and queue.empty():
                    return
            else:
                if self._heard(msgspec.msgpack.decode(message, type=_Report | _Canaries)):
                    last_new = now
                if not self.selfcheck.is_sound and not stop.is_set():
                    stop.set()
                    end = now
            if now - saved > SAVE_EVERY_S:
                self._save(now - started)
                saved = now
            on_progress(self._live(now - started, last_new, now))

    def _heard(self, report: _Report | _Canaries) -> bool:
        """Counts what a worker says; whether it is a new finding."""
        self.selfcheck = together((self.selfcheck, report.selfcheck))
        self._totals.selfcheck = together((self._totals.selfcheck, report.selfcheck))
        if isinstance(report, _Canaries):
            if report.is_last:
                self.unchecked.discard(report.worker)
            return False
        self._totals.add(report)
        return report.found is not None and self._take(report.found)

    def _take(self, found: Found) -> bool:
        """Keeps a finding unless its signature is known with a lower index; whether it is new."""
        if found.signature in self.known:
            return False
        earlier = self.new.get(found.signature)
        if earlier is not None and earlier.index <= found.index:
            return False
        self.new[found.signature] = found
        save(found.witness, self._folder / witness_name(found.signature))
        return earlier is None

    def _live(self, seconds: float, last_new: float | None, now: float) -> Live:
        return Live(
            scenarios=sum(self._totals.done),
            schedules=self._totals.schedules,
            seconds=self._before + seconds,
            signatures=len(self.known) + len(self.new),
            last_new_s=None if last_new is None else now - last_new,
        )

    def _save(self, seconds: float) -> CampaignState:
        totals = self._totals
        state = CampaignState(
            schema=STATE_SCHEMA,
            seed=self._plan.seed,
            workers=self._plan.workers,
            fault=self._plan.fault,
            done=tuple(totals.done),
            schedules=totals.schedules,
            verdicts=dict(sorted(totals.verdicts.items())),
            exercised=dict(sorted(totals.exercised.items())),
            scenarios_with=dict(sorted(totals.scenarios_with.items())),
            seconds=self._before + seconds,
            selfcheck=totals.selfcheck,
        )
        partial = self._folder / f".{STATE_FILE}"
        partial.write_bytes(msgspec.json.format(msgspec.json.encode(state), indent=1) + b"\n")
        partial.replace(self._folder / STATE_FILE)
        return state


def _known(folder: Path) -> set[str]:
    """Signatures of the witnesses in a folder, which is made if it does not exist."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return {load_witness(path).signature for path in folder.glob("*.witness.json")}
    except (OSError, WitnessError) as error:
        raise CampaignError(str(error)) from error


def witness_name(signature: str) -> str:
    """A file name for a signature."""
    plain = "".join(c if c.isalnum() or c in "-_." else "_" for c in signature.replace("/", "-"))
    return f"{plain[:120]}.witness.json"


def _work(
    plan: Plan, worker: int, start: int, known: frozenset[str], queue: Queue[bytes], stop: Any
) -> None:
    """One worker: its scenarios in order, from where it stopped."""
    fault = None if plan.fault is None else find_fault(plan.fault)
    seen = set(known)
    position = start
    queue.put(msgspec.msgpack.encode(_canaries(plan, worker, is_last=False)))
    while not stop.is_set():
        if is_orphan():
            # Nobody empties the queue: what is in it must not keep this process.
            queue.cancel_join_thread()
            return
        index = worker + position * plan.workers
        if plan.scenarios is not None and index >= plan.scenarios:
            break
        report = look_at(plan, worker, index, fault, seen)
        queue.put(msgspec.msgpack.encode(report))
        position += 1
    queue.put(msgspec.msgpack.encode(_canaries(plan, worker, is_last=True)))


def _canaries(plan: Plan, worker: int, *, is_last: bool) -> _Canaries:
    def look(checker: Checker, fault: Fault | None) -> RunResult:
        return search(checker, fault=fault, budget=LADDER_BUDGET, seed=plan.seed)

    return _Canaries(worker=worker, is_last=is_last, selfcheck=plant_canaries(look))


def look_at(plan: Plan, worker: int, index: int, fault: Fault | None, seen: set[str]) -> _Report:
    """Searches one generated scenario; a signature this worker has not seen is minimised."""
    scenario = generate(seeded(plan.seed, index), name=f"generated-{plan.seed}-{index}")
    checker = Checker(scenario)
    twice = _twice(plan, index, checker, fault) if is_run_twice(plan.seed, index) else []
    result = search(checker, fault=fault, budget=LADDER_BUDGET, seed=plan.seed + index)
    schedules = result.stats.schedules
    if plan.holds_each and signature_of(result.findings) is None:
        result, more = _with_drawn_holds(plan, index, checker, fault, result)
        schedules += more
    signature = signature_of(result.findings)
    found = None
    if signature is not None and signature not in seen and result.verdict is not Verdict.BENIGN:
        seen.add(signature)
        found = _minimised(plan, index, scenario, result, fault)
    return _Report(
        worker=worker,
        index=index,
        schedules=schedules,
        verdict=result.verdict,
        exercised=result.stats.exercised,
        settings=_settings_of(checker.scenario) + _idle(result),
        found=found,
        selfcheck=together(run.again() for run in twice),
    )


def _twice(plan: Plan, index: int, checker: Checker, fault: Fault | None) -> list[TwiceRun]:
    """The eager run, and the first with drawn holds, if the plan draws any."""
    schedules = [EAGER] + ([_drawn(plan, index, 0)] if plan.holds_each else [])
    return [TwiceRun(checker, fault, schedule=schedule) for schedule in schedules]


def _drawn(plan: Plan, index: int, number: int) -> Schedule:
    """The drawn schedule of that number for a scenario."""
    return generate_holds(seeded(plan.seed, index * 1_000_003 + number))


def _idle(result: RunResult) -> tuple[str, ...]:
    return () if result.stats.boundaries else (NOTHING_HAPPENED,)


def _settings_of(scenario: Scenario) -> tuple[str, ...]:
    """What the drawn configuration was, for the campaign's distribution."""
    engine = scenario.engine
    return (
        f"cache_mode = {engine.cache_mode}",
        f"zeroing = {engine.zeroing}",
        f"planning = {engine.planning}",
        f"drafter = {engine.drafter}",
        f"depth = {engine.depth}",
        f"draft_len_max = {engine.draft_len_max}",
        f"requests = {len(scenario.requests)}",
    )


def _with_drawn_holds(
    plan: Plan, index: int, checker: Checker, fault: Fault | None, clean: RunResult
) -> tuple[RunResult, int]:
    """The first finding among schedules with drawn holds, else the clean result; and how many."""
    runs = SharedRuns(checker, fault)
    for number in range(plan.holds_each):
        result = runs.run(_drawn(plan, index, number))
        if signature_of(result.findings) is not None:
            return result, number + 1
    return clean, plan.holds_each


def _minimised(
    plan: Plan, index: int, scenario: Scenario, result: RunResult, fault: Fault | None
) -> Found:
    schedule = parse_schedule(list(result.schedule))
    small = minimise(scenario, schedule, fault)
    title = f"{small.signature} (scenario {index} of seed {plan.seed})"
    return Found(
        signature=small.signature,
        index=index,
        witness=witness_of(small, fault, title=title, seed=plan.seed),
        runs=small.runs,
        is_minimal=small.is_minimal,
    )
