"""Findings that are known, and a gate beside them: they may disappear, and nothing may come."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from fnmatch import fnmatchcase

import msgspec

from racegate.history.exit_code import ExitCode
from racegate.history.finding import Finding, FindingKind, Verdict, failure_in
from racegate.history.outcome import RunResult
from racegate.scenario.strict import StrictStruct

SCHEMA = "racegate.baseline/1"


class KnownFinding(StrictStruct, frozen=True, kw_only=True, order=True, omit_defaults=True):
    """A finding that is let stand. scenario: where it is seen; signature: what it is known by

    reason: why it is let stand, where it was accepted
    """

    scenario: str
    signature: str
    reason: str = ""

    @property
    def name(self) -> str:
        """As it is told."""
        return f"{self.scenario}: {self.signature}"

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


class KnownPlace(StrictStruct, frozen=True, kw_only=True):
    """Races at a place of a program, or of a release, that are let stand. A race is there if the
    innermost frame of one of its two accesses is.

    file: with wildcards, as the path ends; function: its qualified name, with wildcards
    causes_max: missing edges that it lets stand; of more, none. null: of any number
    scenarios: that showed it when it was written; empty: it may be of any, and is never dropped
    reason: why, in words
    """

    file: str
    function: str = "*"
    causes_max: int | None = None
    scenarios: tuple[str, ...] = ()
    reason: str = ""

    @property
    def name(self) -> str:
        """As it is given on a command line."""
        return self.file if self.function == "*" else f"{self.file}:{self.function}"

    def matches(self, finding: Finding) -> bool:
        """Whether the finding is a race at this place."""
        race = finding.race
        sides = () if race is None else (race.first, race.second)
        return any(self._is_at(*side.stack[0]) for side in sides if side.stack)

    def _is_at(self, path: str, _line: int, function: str) -> bool:
        is_file = any(fnmatchcase(path, one) for one in (self.file, f"*/{self.file}"))
        return is_file and fnmatchcase(function, self.function)


class BaselineFile(StrictStruct, frozen=True, kw_only=True, omit_defaults=True):
    """known: what is let stand, in order; places: races that are let stand by where they are"""

    schema: str
    known: tuple[KnownFinding, ...]
    places: tuple[KnownPlace, ...] = ()


class PlacedFindings(msgspec.Struct, frozen=True, kw_only=True):
    """What a place of the baseline matches.

    place: as the baseline has it; findings: in order; causes: their missing edges
    """

    place: KnownPlace
    findings: tuple[KnownFinding, ...]
    causes: tuple[str, ...]

    @property
    def is_outgrown(self) -> bool:
        """Whether there are more causes than the place was written for: it lets none stand then,
        because nobody knows which of them is new.
        """
        most = self.place.causes_max
        return most is not None and len(self.causes) > most


class Ratchet(msgspec.Struct, frozen=True, kw_only=True):
    """A job beside a file of known findings: they may disappear, and nothing may come.

    file: where they stand; mode: how they are let stand
    known: seen, and let stand; new: seen, and not in the file
    gone: in the file, and not seen though its scenario was run
    kept: in the file, and its scenario was not run
    placed: what each place of the file matches
    stale: places that match nothing, although all scenarios that showed it were run
    """

    file: str = ""
    mode: KnownMode = KnownMode.BASELINE
    known: tuple[KnownFinding, ...]
    new: tuple[KnownFinding, ...]
    gone: tuple[KnownFinding, ...]
    kept: tuple[KnownFinding, ...]
    placed: tuple[PlacedFindings, ...] = ()
    stale: tuple[KnownPlace, ...] = ()

    @property
    def left(self) -> BaselineFile:
        """The file without what is gone."""
        places = tuple(map(_shrunk, self.placed))
        return baseline_of(
            (*self.known, *self.kept), [one for one in places if one not in self.stale]
        )

    @property
    def standing(self) -> frozenset[KnownFinding]:
        """All that is let stand, by signature or by place."""
        placed = (one.findings for one in self.placed if not one.is_outgrown)
        return frozenset(one.bare for one in self.known).union(*placed)

    @property
    def expired(self) -> tuple[KnownFinding | KnownPlace, ...]:
        """What was accepted and is not there any more, which is an error."""
        return (*self.gone, *self.stale) if self.mode is KnownMode.ACCEPTED else ()

    def reason_of(self, scenario: str, signature: str) -> str | None:
        """Why a finding is let stand, empty if nobody said; None if it is not."""
        asked = KnownFinding(scenario=scenario, signature=signature)
        if asked not in self.standing:
            return None
        reasons = {one.bare: one.reason for one in self.known}
        places = (one.place.reason for one in self.placed if asked in one.findings)
        return reasons.get(asked) or next(filter(None, places), "")

    @property
    def is_smaller(self) -> bool:
        """Whether the baseline lets more stand than there is."""
        return bool(self.gone or self.stale) or any(
            one.place != _shrunk(one) for one in self.placed
        )

    def lets_stand(self, result: RunResult) -> bool:
        """Whether all that is wrong with a run is known."""
        seen = findings_of([result])
        return bool(seen) and seen.keys() <= self.standing

    def passed(self, result: RunResult) -> RunResult:
        """A result as it counts: what is known is a pass, and hides nothing that is unmet."""
        if not self.lets_stand(result):
            return result
        beside = result.comparison
        if beside is not None:
            beside = msgspec.structs.replace(beside, changed=None, new=())
        return msgspec.structs.replace(result, verdict=Verdict.PROVED, comparison=beside)

    def code_of(self, code: int) -> int:
        """What a job ends with that ends with `code` but for its file: what expired is bad
        input.
        """
        return ExitCode.BAD_INPUT if self.expired and code == ExitCode.CLEAN else code


def _shrunk(placed: PlacedFindings) -> KnownPlace:
    """The place, for no more causes than there are."""
    most = placed.place.causes_max
    if most is None or not placed.causes:
        return placed.place
    return msgspec.structs.replace(placed.place, causes_max=min(most, len(placed.causes)))


def findings_of(results: Iterable[RunResult]) -> dict[KnownFinding, Finding]:
    """What each scenario's failure is known by, and every race beside it; beside a base, all that
    differs from it.
    """
    return {
        KnownFinding(scenario=result.scenario, signature=finding.signature): finding
        for result in results
        for finding in _counted(result)
    }


def _counted(result: RunResult) -> list[Finding]:
    if result.comparison is not None:
        return list(result.comparison.findings)
    races = [one for one in result.findings if one.kind is FindingKind.CONFLICT]
    failure = failure_in(result.findings)
    return races if failure is None else [*races, failure]


def baseline_of(known: Iterable[KnownFinding], places: Iterable[KnownPlace] = ()) -> BaselineFile:
    """A baseline, in order."""
    return BaselineFile(schema=SCHEMA, known=tuple(sorted(known)), places=tuple(places))


def standing_in(results: Iterable[RunResult], known: Ratchet | None) -> tuple[RunResult, ...]:
    """The results in which something is wrong that is not known, or nothing is."""
    return tuple(one for one in results if known is None or not known.lets_stand(one))
