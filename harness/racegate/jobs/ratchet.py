"""A baseline of findings that are known: they may disappear, and nothing may come.

The file is written by the gate and made smaller by it; who wants it larger has to write it anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from racegate.history.exit_code import ExitCode
from racegate.history.finding import Benign, Finding, FindingKind, failure_in
from racegate.history.outcome import RunResult
from racegate.scenario.errors import BadInputError
from racegate.scenario.strict import StrictStruct
from racegate.scenario.untrusted.files import write_json
from racegate.scenario.untrusted.reading import ReadError, read_json
from racegate.scenario.untrusted.text import quoted

SCHEMA = "racegate.baseline/1"
FILE_BYTES_MAX = 1 << 20


class BaselineError(BadInputError):
    """A baseline that cannot be used: names the file and the reason."""


class KnownFinding(StrictStruct, frozen=True, kw_only=True, order=True):
    """A finding that is let stand. scenario: where it is seen; signature: what it is known by"""

    scenario: str
    signature: str


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
    """A gate beside its baseline.

    known: seen, and let stand; new: seen, and not in the baseline
    gone: in the baseline, and not seen though its scenario was run
    kept: in the baseline, and its scenario was not run
    placed: what each place of the baseline matches
    stale: places that match nothing, although all scenarios that showed it were run
    """

    known: tuple[KnownFinding, ...]
    new: tuple[KnownFinding, ...]
    gone: tuple[KnownFinding, ...]
    kept: tuple[KnownFinding, ...]
    placed: tuple[PlacedFindings, ...] = ()
    stale: tuple[KnownPlace, ...] = ()

    @property
    def left(self) -> BaselineFile:
        """The baseline without what is gone."""
        places = tuple(map(_shrunk, self.placed))
        return baseline_of(
            (*self.known, *self.kept), [one for one in places if one not in self.stale]
        )

    @property
    def standing(self) -> frozenset[KnownFinding]:
        """All that is let stand, by signature or by place."""
        placed = (one.findings for one in self.placed if not one.is_outgrown)
        return frozenset(self.known).union(*placed)

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


def first_baseline(
    results: Sequence[RunResult], named: Iterable[KnownPlace], *, benign: Benign
) -> BaselineFile:
    """What there is, as the baseline to begin with: what is at a place that was named by its place,
    which is then for no more causes, and the rest by signature. A place without a race is left out.
    """
    seen = compared(results, baseline_of((), named), benign=benign)
    used = [one for one in seen.placed if one.findings]
    places = [
        msgspec.structs.replace(
            one.place,
            causes_max=len(one.causes),
            scenarios=tuple(sorted({found.scenario for found in one.findings})),
        )
        for one in used
    ]
    return baseline_of(seen.new, places)


def compared(results: Sequence[RunResult], baseline: BaselineFile, *, benign: Benign) -> Ratchet:
    """What was found beside what is known. What passes is no finding."""
    wrong = [result for result in results if result.gate_code(benign) is ExitCode.FINDING]
    seen, before = findings_of(wrong), set(baseline.known)
    run = {result.scenario for result in results}
    missing = before - seen.keys()
    # What stands by its signature needs no place.
    rest = {known: finding for known, finding in seen.items() if known not in before}
    placed = tuple(_at(place, rest) for place in baseline.places)
    ratchet = Ratchet(
        known=tuple(sorted(seen.keys() & before)),
        new=(),
        gone=tuple(sorted(one for one in missing if one.scenario in run)),
        kept=tuple(sorted(one for one in missing if one.scenario not in run)),
        placed=placed,
        stale=tuple(one.place for one in placed if _is_stale(one, run)),
    )
    return msgspec.structs.replace(ratchet, new=tuple(sorted(seen.keys() - ratchet.standing)))


def _at(place: KnownPlace, findings: Mapping[KnownFinding, Finding]) -> PlacedFindings:
    found = {known: one.race for known, one in findings.items() if place.matches(one) and one.race}
    causes = {race.cause or race.edge for race in found.values()}
    return PlacedFindings(place=place, findings=tuple(sorted(found)), causes=tuple(sorted(causes)))


def _is_stale(placed: PlacedFindings, run: Set[str]) -> bool:
    named = placed.place.scenarios
    return not placed.findings and bool(named) and run >= set(named)


def load_baseline(path: Path) -> BaselineFile:
    """Raises BaselineError."""
    try:
        found = msgspec.convert(read_json(path, FILE_BYTES_MAX), BaselineFile)
    except ReadError as error:
        hint = "" if path.exists() else "; --update-baseline writes it"
        raise BaselineError(f"{path}: cannot be read: {error}{hint}") from error
    except msgspec.ValidationError as error:
        raise BaselineError(f"{path}: {error}") from error
    if found.schema != SCHEMA:
        said = quoted(found.schema)
        raise BaselineError(f"{path}: its schema is {said}, this racegate reads {SCHEMA!r}")
    return found


def save_baseline(path: Path, baseline: BaselineFile) -> None:
    """Writes the file whole or not at all."""
    write_json(path, baseline)
