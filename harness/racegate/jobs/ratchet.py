"""A baseline of findings that are known: they may disappear, and nothing may come.

The file is written by the gate and made smaller by it; who wants it larger has to write it anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from racegate.history.exit_code import ExitCode
from racegate.history.finding import Benign, FindingKind, signature_of
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


class BaselineFile(StrictStruct, frozen=True, kw_only=True):
    """known: what is let stand, in order"""

    schema: str
    known: tuple[KnownFinding, ...]


class Ratchet(msgspec.Struct, frozen=True, kw_only=True):
    """A gate beside its baseline.

    known: seen, and let stand; new: seen, and not in the baseline
    gone: in the baseline, and not seen though its scenario was run
    kept: in the baseline, and its scenario was not run
    """

    known: tuple[KnownFinding, ...]
    new: tuple[KnownFinding, ...]
    gone: tuple[KnownFinding, ...]
    kept: tuple[KnownFinding, ...]

    @property
    def left(self) -> tuple[KnownFinding, ...]:
        """The baseline without what is gone."""
        return tuple(sorted((*self.known, *self.kept)))

    def lets_stand(self, result: RunResult) -> bool:
        """Whether all that is wrong with a run is known."""
        seen = findings_of([result])
        return bool(seen) and seen <= set(self.known)


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


def compared(
    results: Sequence[RunResult], baseline: Iterable[KnownFinding], *, benign: Benign
) -> Ratchet:
    """What was found beside what is known. What passes is no finding."""
    wrong = [result for result in results if result.gate_code(benign) is ExitCode.FINDING]
    seen, before = findings_of(wrong), set(baseline)
    run = {result.scenario for result in results}
    missing = before - seen
    return Ratchet(
        known=tuple(sorted(seen & before)),
        new=tuple(sorted(seen - before)),
        gone=tuple(sorted(one for one in missing if one.scenario in run)),
        kept=tuple(sorted(one for one in missing if one.scenario not in run)),
    )


def load_baseline(path: Path) -> tuple[KnownFinding, ...]:
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
    return found.known


def save_baseline(path: Path, known: Iterable[KnownFinding]) -> None:
    """Writes the file whole or not at all."""
    file = BaselineFile(schema=SCHEMA, known=tuple(sorted(known)))
    write_json(path, file)
