"""Findings that are known, and a gate beside them: they may disappear, and nothing may come."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from racegate.history.exit_code import ExitCode
from racegate.history.finding import FindingKind, Verdict, signature_of
from racegate.history.outcome import RunResult
from racegate.scenario.strict import StrictStruct


class KnownFinding(StrictStruct, frozen=True, kw_only=True, order=True, omit_defaults=True):
    """A finding that is let stand. scenario: where it is seen; signature: what it is known by

    reason: why it is let stand, where it was accepted
    """

    scenario: str
    signature: str
    reason: str = ""

    @property
    def bare(self) -> KnownFinding:
        """What it is known by, whatever the reason."""
        return msgspec.structs.replace(self, reason="")


class KnownMode(StrEnum):
    """How known findings are let stand. BASELINE: as they were found, and what is gone is told

    ACCEPTED: each with a reason, and what is gone is an error
    """

    BASELINE = "baseline"
    ACCEPTED = "accepted"


class Ratchet(msgspec.Struct, frozen=True, kw_only=True):
    """A job beside a file of known findings: they may disappear, and nothing may come.

    file: where they stand; mode: how they are let stand
    known: seen, and let stand; new: seen, and not in the file
    gone: in the file, and not seen though its scenario was run
    kept: in the file, and its scenario was not run
    """

    file: str = ""
    mode: KnownMode = KnownMode.BASELINE
    known: tuple[KnownFinding, ...]
    new: tuple[KnownFinding, ...]
    gone: tuple[KnownFinding, ...]
    kept: tuple[KnownFinding, ...]

    @property
    def left(self) -> tuple[KnownFinding, ...]:
        """The file without what is gone."""
        return tuple(sorted((*self.known, *self.kept)))

    @property
    def stale(self) -> tuple[KnownFinding, ...]:
        """What was accepted and is not there any more, which is an error."""
        return self.gone if self.mode is KnownMode.ACCEPTED else ()

    def reason_of(self, scenario: str, signature: str) -> str | None:
        """Why a finding is let stand, empty if nobody said; None if it is not."""
        same = (one for one in self.known if (one.scenario, one.signature) == (scenario, signature))
        return next((one.reason for one in same), None)

    def lets_stand(self, result: RunResult) -> bool:
        """Whether all that is wrong with a run is known."""
        seen = findings_of([result])
        return bool(seen) and seen <= {one.bare for one in self.known}

    def passed(self, result: RunResult) -> RunResult:
        """A result as it counts: what is known is a pass, and hides nothing that is unmet."""
        if not self.lets_stand(result):
            return result
        beside = result.comparison
        if beside is not None:
            beside = msgspec.structs.replace(beside, changed=None, new=())
        return msgspec.structs.replace(result, verdict=Verdict.PROVED, comparison=beside)

    def code_of(self, code: int) -> int:
        """What a job ends with that would pass but for its file: stale entries are bad input."""
        return ExitCode.BAD_INPUT if self.stale and code == ExitCode.CLEAN else code


def findings_of(results: Iterable[RunResult]) -> set[KnownFinding]:
    """What each scenario's failure is known by, and every race beside it; beside a base, all that
    differs from it.
    """
    return {
        KnownFinding(scenario=result.scenario, signature=signature)
        for result in results
        for signature in _signatures(result)
        if signature is not None
    }


def _signatures(result: RunResult) -> set[str | None]:
    if result.comparison is not None:
        return {one.signature for one in result.comparison.findings}
    races = {one.signature for one in result.findings if one.kind is FindingKind.CONFLICT}
    return {signature_of(result.findings), *races}


def standing_in(results: Iterable[RunResult], known: Ratchet | None) -> tuple[RunResult, ...]:
    """The results in which something is wrong that is not known, or nothing is."""
    return tuple(one for one in results if known is None or not known.lets_stand(one))
