"""A job as SARIF 2.1.0: what is wrong as results, known by their signatures."""

from __future__ import annotations

from urllib.parse import quote

import msgspec

from racegate.history import __version__
from racegate.history.exit_code import ExitCode
from racegate.history.outcome import Checked, Failing
from racegate.report.ci.failing import KINDS
from racegate.scenario.untrusted.text import printable, printable_lines

VERSION = "2.1.0"
FINGERPRINT = "racegateSignature/v1"


class _Sarif(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Named as the format has it."""


class _Message(_Sarif, frozen=True):
    """Plain text."""

    text: str


class _Rule(_Sarif, frozen=True):
    """A kind of finding."""

    id: str
    short_description: _Message


class _Driver(_Sarif, frozen=True):
    """The tool."""

    name: str
    version: str
    rules: tuple[_Rule, ...]


class _Tool(_Sarif, frozen=True):
    """The tool without extensions."""

    driver: _Driver


class _Artifact(_Sarif, frozen=True):
    """A file, by its path from where the job ran."""

    uri: str


class _Region(_Sarif, frozen=True):
    """A scenario is wrong as a whole, from its first line; a program at a line of its own."""

    start_line: int


class _Place(_Sarif, frozen=True):
    """A place in a file."""

    artifact_location: _Artifact
    region: _Region


class _Location(_Sarif, frozen=True):
    """See the format."""

    physical_location: _Place


class _Justified(_Sarif, frozen=True):
    """Who lets a result stand, beside the source, and why."""

    justification: str
    kind: str = "external"


class _SarifResult(_Sarif, frozen=True):
    """Something wrong. baseline_state: `new` or `unchanged`, if there is a baseline

    suppressions: of what was accepted with a reason
    """

    rule_id: str
    rule_index: int
    level: str
    message: _Message
    partial_fingerprints: dict[str, str]
    locations: tuple[_Location, ...] = ()
    baseline_state: str | None = None
    suppressions: tuple[_Justified, ...] = ()


class _Invocation(_Sarif, frozen=True):
    """How the job ended."""

    execution_successful: bool
    exit_code: int


class _SarifRun(_Sarif, frozen=True):
    """One job."""

    tool: _Tool
    invocations: tuple[_Invocation, ...]
    results: tuple[_SarifResult, ...]


class SarifFile(_Sarif, frozen=True):
    """A file of the format."""

    version: str
    runs: tuple[_SarifRun, ...]


def sarif_of(checked: Checked) -> SarifFile:
    """All that is wrong is a result."""
    rules = tuple(
        _Rule(id=str(kind), short_description=_Message(text=text)) for kind, text in KINDS.items()
    )
    run = _SarifRun(
        tool=_Tool(driver=_Driver(name="racegate", version=__version__, rules=rules)),
        invocations=(
            _Invocation(
                execution_successful=checked.exit_code != ExitCode.BROKEN_HARNESS,
                exit_code=checked.exit_code,
            ),
        ),
        results=tuple(_result(one, checked) for one in checked.failing),
    )
    return SarifFile(version=VERSION, runs=(run,))


def _result(one: Failing, checked: Checked) -> _SarifResult:
    known = None
    if checked.has_baseline:
        known = "unchanged" if one.is_known else "new"
    replay = f"\n\nReplay: {one.replay}" if one.replay else ""
    location = _Location(
        physical_location=_Place(
            artifact_location=_Artifact(uri=quote(printable(one.file))),
            region=_Region(start_line=one.line),
        )
    )
    return _SarifResult(
        rule_id=one.kind,
        rule_index=list(KINDS).index(one.kind),
        level="error",
        message=_Message(text=printable_lines(f"{one.name}: {one.message}{replay}")),
        locations=(location,) if one.file else (),
        partial_fingerprints={FINGERPRINT: printable(f"{one.name}/{one.signature}")},
        baseline_state=known,
        suppressions=(_Justified(justification=printable(one.reason)),) if one.reason else (),
    )
