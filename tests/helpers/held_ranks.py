"""Drawn scenarios of the own engine with ranks, each under drawn holds that hold something."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path

from agreeing import agree
from racegate.check.checker import Checker
from racegate.check.sharing import SharedRuns
from racegate.explore.generate import generate_holds, seeded
from racegate.faults.catalogue import find_fault
from racegate.history.finding import signature_of
from racegate.history.outcome import RunResult
from racegate.history.schedule import Schedule, parse_schedule
from racegate.history.witness import load_witness
from racegate.jobs.generated import drawn

WITNESSES = Path(__file__).parents[2] / "scenarios" / "witnesses"
EACH, DRAWN_FOR_EACH = 1000, 20_000


@dataclass(slots=True, kw_only=True)
class RanksCampaign:
    """How far it is. next_index: of the scenario to draw next; scenarios: those with ranks

    schedules: that held something, each once; holds: how many of them have so many
    realised: schedules whose holds all landed where they were to; alone: run a second time, alone
    settings: how many scenarios have them; starts: of the command; faults_found: by the last one
    findings: what was found, and runs that were not the same
    """

    environment: dict[str, str]
    seed: int
    next_index: int = 0
    scenarios: int = 0
    schedules: int = 0
    realised: int = 0
    alone: int = 0
    holds: dict[str, int] = field(default_factory=dict)
    settings: dict[str, int] = field(default_factory=dict)
    starts: int = 0
    faults_found: int = 0
    cpu_s: float = 0.0
    findings: list[str] = field(default_factory=list)


def find_faults(found: RanksCampaign) -> None:
    """What the campaign would not find, it could not miss."""
    found.starts += 1
    found.faults_found = 0
    for path in sorted(WITNESSES.glob("*.json")):
        witness = load_witness(path)
        if witness.scenario.engine.ranks == 1 or witness.fault is None:
            continue
        schedule, fault = parse_schedule(list(witness.holds)), find_fault(witness.fault)
        result = Checker(witness.scenario).run(schedule=schedule, fault=fault)
        if signature_of(result.findings) is None:
            found.findings.append(f"nothing of the fault {witness.fault}")
        else:
            found.faults_found += 1


def look_at(found: RanksCampaign, index: int) -> None:
    """Runs the scenario of that number, if it has ranks, under its schedules."""
    scenario = drawn(found.seed, index)
    if scenario.engine.ranks == 1:
        return
    checker = Checker(scenario)
    runs = SharedRuns(checker)
    _note(found, runs.eager, f"scenario {index} of seed {found.seed}")
    for number, schedule in enumerate(_schedules(found, index, runs)):
        where = f"scenario {index} of seed {found.seed}: {', '.join(schedule.texts())}"
        result = runs.run(schedule)
        _note(found, result, where)
        found.schedules += 1
        found.realised += all(one.realised == one.matched > 0 for one in result.holds)
        _count(found.holds, str(len(schedule.holds)))
        if number == 0:
            found.alone += 1
            if not agree((result, checker.run(schedule=schedule))):
                found.findings.append(f"{where}: says something else alone")
    found.scenarios += 1
    for setting in ("layout", "cache_mode", "depth", "draft_len_max"):
        _count(found.settings, f"{setting} = {getattr(scenario.engine, setting)}")


def _schedules(found: RanksCampaign, index: int, runs: SharedRuns) -> Iterator[Schedule]:
    """Those of a scenario that hold something, each once."""
    engine = drawn(found.seed, index).engine
    picks = (seeded(found.seed, index * 1_000_003 + number) for number in count())
    made = (generate_holds(pick, layout=engine.layout, ranks=engine.ranks) for pick in picks)
    some = (one for one in islice(made, DRAWN_FOR_EACH) if one.holds and runs.holds_all(one))
    seen: set[Schedule] = set()
    while len(seen) < EACH and (one := next(some, None)) is not None:
        if one not in seen:
            seen.add(one)
            yield one


def _note(found: RanksCampaign, result: RunResult, where: str) -> None:
    signature = signature_of(result.findings)
    if signature is not None:
        found.findings.append(f"{where}: {signature}")


def _count(counted: dict[str, int], name: str) -> None:
    counted[name] = counted.get(name, 0) + 1
