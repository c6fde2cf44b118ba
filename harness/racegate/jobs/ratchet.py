"""Findings that are known: they may disappear, and nothing may come.

The file is written by the gate and made smaller by it. Who wants a baseline larger has to write it
anew; what is accepted is added with a reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from racegate.history.exit_code import ExitCode
from racegate.history.finding import Benign
from racegate.history.gates.known import KnownFinding, KnownMode, Ratchet, findings_of
from racegate.history.outcome import RunResult
from racegate.scenario.errors import BadInputError
from racegate.scenario.strict import StrictStruct
from racegate.scenario.untrusted.files import write_json
from racegate.scenario.untrusted.reading import ReadError, read_json
from racegate.scenario.untrusted.text import quoted

SCHEMA = "racegate.baseline/1"
FILE_BYTES_MAX = 1 << 20
_WRITES = {KnownMode.BASELINE: "--update-baseline", KnownMode.ACCEPTED: "--reason TEXT"}


class BaselineError(BadInputError):
    """A baseline that cannot be used: names the file and the reason."""


class BaselineFile(StrictStruct, frozen=True, kw_only=True):
    """known: what is let stand, in order"""

    schema: str
    known: tuple[KnownFinding, ...]


def compared(
    results: Sequence[RunResult],
    known: Iterable[KnownFinding],
    *,
    benign: Benign,
    mode: KnownMode = KnownMode.BASELINE,
    file: str = "",
) -> Ratchet:
    """What was found beside what is known. What passes is no finding. mode, file: of the
    ratchet
    """
    wrong = [result for result in results if result.gate_code(benign) is ExitCode.FINDING]
    seen, before = findings_of(wrong), {one.bare: one for one in known}
    run = {result.scenario for result in results}
    missing = [one for bare, one in before.items() if bare not in seen]
    return Ratchet(
        file=file,
        mode=mode,
        known=tuple(sorted(one for bare, one in before.items() if bare in seen)),
        new=tuple(sorted(seen - before.keys())),
        gone=tuple(sorted(one for one in missing if one.scenario in run)),
        kept=tuple(sorted(one for one in missing if one.scenario not in run)),
    )


def with_reason(found: Iterable[KnownFinding], reason: str) -> tuple[KnownFinding, ...]:
    """Findings that are accepted for one reason."""
    return tuple(msgspec.structs.replace(one, reason=reason) for one in found)


def load_known(path: Path, mode: KnownMode = KnownMode.BASELINE) -> tuple[KnownFinding, ...]:
    """What is let stand. Raises BaselineError, also where an accepted finding has no reason."""
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
            raise BaselineError(
                f"{path}: {one.scenario}: {one.signature} stands there {count} times"
            )
    for one in found.known if mode is KnownMode.ACCEPTED else ():
        if not one.reason.strip():
            raise BaselineError(f"{path}: {one.scenario}: {one.signature} has no reason; write one")
    return found.known


def save_known(path: Path, known: Iterable[KnownFinding]) -> None:
    """Writes the file whole or not at all."""
    file = BaselineFile(schema=SCHEMA, known=tuple(sorted(known)))
    write_json(path, file)
