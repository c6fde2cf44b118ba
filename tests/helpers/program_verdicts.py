"""Verdicts on programs that nobody ran: what a search came to for each of some races."""

from __future__ import annotations

from typing import Any

import msgspec

from racegate.history.finding import Hazard, Race, Side, Verdict
from racegate.history.schedule import Hold
from racegate.history.verdict import Reach, Tried
from racegate.interpose.outcome import Ending, Observation, Outcome
from racegate.targets.common.landings import LandingRun
from racegate.targets.common.search import Effect, JudgedRace, LandingSearch
from racegate.targets.program.judge import ProgramVerdict

RIGHT, WRONG = (Observation("sum", "1", "64.0"),), (Observation("sum", "3", "0.0"),)


def side(place: str, *, is_write: bool) -> Side:
    return Side(
        operation="d2h",
        label=f"d2h@{place}:step#1",
        lane="stream 1",
        is_host=not is_write,
        is_write=is_write,
        stack=((place, 5, "step"),),
    )


def finding(signature: str, place: str = "x.py") -> Race:
    return Race(
        hazard=Hazard.READ_AFTER_WRITE,
        signature=signature,
        buffer="host (step)",
        nbytes=4,
        count=1,
        first=side(place, is_write=True),
        second=side(place, is_write=False),
        edge="wait",
        pairs=(),
    )


def verdicts(*findings: Race, verdict: Verdict, **fields: Any) -> ProgramVerdict:
    outcome = Outcome(ending=Ending.FINISHED, findings=findings, observations=RIGHT)
    held = msgspec.structs.replace(outcome, findings=(), observations=WRONG)
    landings = [
        LandingRun(holds=(Hold(op=one.first.label),), base=outcome, what=held, is_harmful=True)
        for one in findings
    ]
    is_all = verdict is Verdict.BENIGN
    races = tuple(
        JudgedRace(
            race=one,
            effect=Effect.BENIGN if is_all else Effect.DIVERGENT,
            landings=1,
            landing=None if is_all else run,
        )
        for one, run in zip(findings, landings, strict=True)
    )
    search = LandingSearch(
        races=races,
        harms=() if is_all else tuple(landings),
        runs=2,
        left=int(not is_all),
        tried=Tried(reach=Reach.COMBINATIONS if is_all else Reach.SOME, number=1),
    )
    found = ProgramVerdict(base=outcome, shown=outcome, search=search)
    return msgspec.structs.replace(found, **fields)
