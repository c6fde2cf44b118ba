"""Findings that are known: they may disappear, and nothing may come.

The file is written by the gate and made smaller by it. Who wants a baseline larger has to write it
anew; what is accepted is added with a reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import TypeVar

import msgspec

from racegate.history.exit_code import ExitCode
from racegate.history.finding import Benign, Finding
from racegate.history.gates.known import (
    SCHEMA,
    BaselineFile,
    KnownFinding,
    KnownMode,
    KnownPlace,
    PlacedFindings,
    Ratchet,
    baseline_of,
    findings_of,
)
from racegate.history.outcome import RunResult
from racegate.scenario.errors import BadInputError
from racegate.scenario.untrusted.files import write_json
from racegate.scenario.untrusted.reading import ReadError, read_json
from racegate.scenario.untrusted.text import quoted

FILE_BYTES_MAX = 1 << 20
Known = TypeVar("Known", KnownFinding, KnownPlace)
_WRITES = {KnownMode.BASELINE: "--update-baseline", KnownMode.ACCEPTED: "--reason TEXT"}


class BaselineError(BadInputError):
    """A baseline that cannot be used: names the file and the reason."""


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


def with_reason(found: BaselineFile, reason: str) -> BaselineFile:
    """What is let stand for no reason yet, for this one."""

    def told(one: Known) -> Known:
        return one if one.reason else msgspec.structs.replace(one, reason=reason)

    return baseline_of(map(told, found.known), map(told, found.places))


def compared(
    results: Sequence[RunResult],
    baseline: BaselineFile,
    *,
    benign: Benign,
    mode: KnownMode = KnownMode.BASELINE,
    file: str = "",
) -> Ratchet:
    """What was found beside what is known. What passes is no finding. mode, file: of the ratchet"""
    wrong = [result for result in results if result.gate_code(benign) is ExitCode.FINDING]
    seen, before = findings_of(wrong), {one.bare: one for one in baseline.known}
    run = {result.scenario for result in results}
    missing = [one for bare, one in before.items() if bare not in seen]
    # What stands by its signature needs no place.
    rest = {known: finding for known, finding in seen.items() if known not in before}
    placed = tuple(_at(place, rest) for place in baseline.places)
    ratchet = Ratchet(
        file=file,
        mode=mode,
        known=tuple(sorted(one for bare, one in before.items() if bare in seen)),
        new=(),
        gone=tuple(sorted(one for one in missing if one.scenario in run)),
        kept=tuple(sorted(one for one in missing if one.scenario not in run)),
        placed=placed,
        stale=tuple(one.place for one in placed if _is_stale(one, run)),
    )
    return msgspec.structs.replace(ratchet, new=tuple(sorted(seen.keys() - ratchet.standing)))


def _at(place: KnownPlace, findings: Mapping[KnownFinding, Finding]) -> PlacedFindings:
    found = {known: one.race for known, one in findings.items() if place.matches(one) and one.race}
    causes = {race.missing for race in found.values()}
    return PlacedFindings(place=place, findings=tuple(sorted(found)), causes=tuple(sorted(causes)))


def _is_stale(placed: PlacedFindings, run: Set[str]) -> bool:
    named = placed.place.scenarios
    return not placed.findings and bool(named) and run >= set(named)


def load_baseline(path: Path, mode: KnownMode = KnownMode.BASELINE) -> BaselineFile:
    """Raises BaselineError, also where something accepted has no reason."""
    try:
        found = msgspec.convert(read_json(path, FILE_BYTES_MAX), BaselineFile)
    except ReadError as error:
        hint = "" if path.exists() else f"; {_WRITES[mode]} writes it"
        raise BaselineError(f"{path}: cannot be read: {error}{hint}") from error
    except msgspec.ValidationError as error:
        raise BaselineError(f"{path}: {error}") from error
    if found.schema != SCHEMA:
        said = quoted(found.schema)
        raise BaselineError(f"{path}: its schema is {said}, this racegate reads {SCHEMA!r}")
    for one, count in Counter(one.bare for one in found.known).items():
        if count > 1:
            raise BaselineError(f"{path}: {one.name} stands there {count} times")
    entries: tuple[KnownFinding | KnownPlace, ...] = (*found.known, *found.places)
    for entry in entries if mode is KnownMode.ACCEPTED else ():
        if not entry.reason.strip():
            raise BaselineError(f"{path}: {entry.name} has no reason; write one")
    return found


def save_baseline(path: Path, baseline: BaselineFile) -> None:
    """Writes the file whole or not at all."""
    write_json(path, baseline)
