"""Witnesses run once and looked at: what tests of reports and pictures share."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec

from racegate.check.judge import Judged
from racegate.check.repro.sweep import sweep
from racegate.faults.catalogue import find_fault
from racegate.faults.fault import Fault
from racegate.history.schedule import parse_schedule
from racegate.history.witness import load_witness
from racegate.report.cause.account import Accounted, accounted, deciding_conflict
from racegate.report.finding.material import pictured_run
from racegate.report.finding.pictured import PicturedFinding
from racegate.report.timeline.model import Timeline, timeline_of
from support import CHECKERS, SCENARIOS

WITNESSES = SCENARIOS / "witnesses"
NAMES = sorted(path.name.removesuffix(".witness.json") for path in WITNESSES.glob("*.json"))


def path_of(name: str) -> Path:
    return WITNESSES / f"{name}.witness.json"


@cache
def judged(name: str) -> Judged:
    """The recorded run of a witness."""
    witness = load_witness(path_of(name))
    schedule = parse_schedule(list(witness.holds))
    checker = CHECKERS.of(witness.scenario, replay=f"racegate replay {name}")
    run = checker.execute(schedule=schedule, fault=fault_of(name))
    return checker.judged(run, schedule=schedule, fault=fault_of(name))


def fault_of(name: str) -> Fault | None:
    fault = load_witness(path_of(name)).fault
    return None if fault is None else find_fault(fault)


@cache
def found(name: str) -> Accounted:
    account = accounted(judged(name))
    assert account is not None
    return account


@cache
def timeline(name: str) -> Timeline:
    pair = found(name).pair
    assert pair is not None
    return timeline_of(judged(name).run, pair)


@cache
def material(name: str, *, is_swept: bool = False) -> PicturedFinding:
    """is_swept: with the schedules beside it"""
    witness = load_witness(path_of(name))
    checker = CHECKERS.of(witness.scenario, replay=f"racegate replay {name}")
    conflict = deciding_conflict(judged(name), found(name).assignment)
    swept = sweep(checker, judged(name), conflict, fault_of(name)) if is_swept and conflict else ()
    return pictured_run(
        judged(name),
        found(name),
        title=witness.scenario.title,
        reference=checker.reference.observations,
        swept=swept,
    )


def renamed(shown: PicturedFinding, bad: str) -> PicturedFinding:
    """A finding whose every name is another."""
    assert shown.timeline is not None
    bars = tuple(msgspec.structs.replace(b, name=bad, touches=bad) for b in shown.timeline.bars)
    step_rows = tuple(
        msgspec.structs.replace(s, rows=(bad,) * len(s.rows)) for s in shown.timeline.step_rows
    )
    lanes = (bad,) * len(shown.timeline.lanes)
    drawn = msgspec.structs.replace(
        shown.timeline, bars=bars, step_rows=step_rows, lanes=lanes, buffer=bad
    )
    return msgspec.structs.replace(
        shown, name=bad, title=bad, impact=bad, buffer=bad, edge=bad, timeline=drawn, stops=()
    )
