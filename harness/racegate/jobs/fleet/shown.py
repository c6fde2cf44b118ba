"""What a target shows with scenarios."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

from racegate.check.selfcheck import SelfCheck
from racegate.history.finding import FindingKind, Verdict

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


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """shown: by the name of the scenario, of those that were answered; why: others were not"""

    shown: dict[str, Shown] = {}
    why: str = ""
    selfcheck: SelfCheck = SelfCheck()


class _Finding(msgspec.Struct, frozen=True):
    signature: str
    kind: str


class _Stats(msgspec.Struct, frozen=True):
    schedules: int = 1
    delivered: int = 0


class _Breakage(msgspec.Struct, frozen=True):
    error: str


class WrittenRun(msgspec.Struct, frozen=True):
    """A RunResult as a command wrote it, as far as it is asked for, of whatever version."""

    scenario: str
    verdict: Verdict
    findings: tuple[_Finding, ...] = ()
    schedule: tuple[str, ...] = ()
    stats: _Stats = _Stats()
    breakages: tuple[_Breakage, ...] = ()

    @property
    def kinds(self) -> frozenset[str]:
        """Of its findings."""
        return frozenset(one.kind for one in self.findings)

    def shown(self) -> Shown:
        """As the other kinds of targets show it."""
        wrong = [one for one in self.findings if one.kind != FindingKind.CONFLICT]
        signature = next((one.signature for one in (*wrong, *self.findings)), None)
        is_pass = self.verdict in (Verdict.PROVED, Verdict.BENIGN)
        return Shown(
            verdict=self.verdict,
            signature=None if is_pass else signature,
            holds=self.schedule,
            schedules=self.stats.schedules,
            delivered=self.stats.delivered,
        )


def read(file: Path, kind: type[T]) -> T | None:
    """What a command wrote; None where it wrote nothing, or it is not understood."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=kind)
    except (OSError, msgspec.MsgspecError):
        return None
