"""What a target shows with scenarios."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

from racegate.check.selfcheck import SelfCheck
from racegate.history.finding import Verdict, counted_finding
from racegate.history.outcome import RunResult

T = TypeVar("T")


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """What a target showed with one scenario.

    signature: of the first wrong value, else of the first race; None where nothing is wrong
    holds: as text; schedules: run; delivered: tokens; refused: whether it does not run this
    """

    verdict: Verdict
    signature: str | None = None
    holds: tuple[str, ...] = ()
    schedules: int = 0
    delivered: int = 0
    refused: bool = False


REFUSED = Shown(verdict=Verdict.INCONCLUSIVE, refused=True)


class FleetAnswers(msgspec.Struct, frozen=True, kw_only=True):
    """shown: by the name of the scenario, of those that were answered; why: others were not"""

    shown: dict[str, Shown] = {}
    why: str = ""
    selfcheck: SelfCheck = SelfCheck()


def shown_of(result: RunResult) -> Shown:
    """What a result shows, of whatever target: a signature only where a job counts a finding."""
    if result.refused:
        return REFUSED
    found = counted_finding(result.verdict, result.findings)
    return Shown(
        verdict=result.verdict,
        signature=None if found is None else found.signature,
        holds=() if found is None else found.holds or result.schedule,
        schedules=result.stats.schedules,
        delivered=result.stats.delivered,
    )


def read(file: Path, kind: type[T]) -> T | None:
    """What a command wrote; None where it wrote nothing, or it is not understood."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=kind)
    except (OSError, msgspec.MsgspecError):
        return None
