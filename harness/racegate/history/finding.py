"""Finding and Verdict: what a run showed, as data. Rendering is the report's business."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import StrEnum

import msgspec

from racegate.history.exit_code import ExitCode


class Verdict(StrEnum):
    """What is known about a scenario under a fault after the runs made.

    PROVED: no conflict in one run, so every schedule has the same outcome, and the outcome is right
    BENIGN: conflicts, but all orders were explored and have one right outcome, and the run
        exercised what it had to
    DIVERGENT: a wrong value, an invariant broken, a loss, or a crash
    CONFLICT: an ordering is missing; no run made so far came out wrong
    DEADLOCK: a wait that nothing can end
    INCONCLUSIVE: the run was cut off, did not exercise what it had to, or was not judged by all
        oracles; or a hold was not realised
    BROKEN_HARNESS: the harness itself failed a check
    """

    PROVED = "PROVED"
    BENIGN = "BENIGN"
    DIVERGENT = "DIVERGENT"
    CONFLICT = "CONFLICT"
    DEADLOCK = "DEADLOCK"
    INCONCLUSIVE = "INCONCLUSIVE"
    BROKEN_HARNESS = "BROKEN_HARNESS"


class Benign(StrEnum):
    """What BENIGN is for a job: a pass, or, strictly, a finding like any other unordered pair."""

    PASS = "pass"
    FINDING = "finding"


class FindingKind(StrEnum):
    """What is wrong.

    CONFLICT: two accesses that nothing orders, so that some schedule turns them round
    DIVERGENCE: a value that is not the reference's
    OWNERSHIP: a value of another request or step where this one's was meant
    INVARIANT: a law of the runner that does not hold
    LOSS: delivered tokens that plain decoding does not give
    DEADLOCK: a wait that nothing can end
    CRASH: the engine stopped on an error
    """

    CONFLICT = "conflict"
    DIVERGENCE = "divergence"
    OWNERSHIP = "ownership"
    INVARIANT = "invariant"
    LOSS = "loss"
    DEADLOCK = "deadlock"
    CRASH = "crash"


class Oracle(StrEnum):
    """What judges a run, in the order causes before effects. The values are those of the matrix."""

    ORDERING = "ordering"
    OWNERSHIP = "ownership"
    STEPWISE = "stepwise"
    INVARIANTS = "invariants"
    LOSSLESSNESS = "losslessness"


ALL_ORACLES = frozenset(Oracle)

# Whose word a finding is. A crash or a deadlock is nobody's: the engine stopped by itself.
ORACLE_OF = {
    FindingKind.CONFLICT: Oracle.ORDERING,
    FindingKind.OWNERSHIP: Oracle.OWNERSHIP,
    FindingKind.DIVERGENCE: Oracle.STEPWISE,
    FindingKind.INVARIANT: Oracle.INVARIANTS,
    FindingKind.LOSS: Oracle.LOSSLESSNESS,
}


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One defect seen in a run. Fields that mean nothing for its kind are None.

    kind: what is wrong; message: the same in words, with what to do about it
    signature: the same for the same defect in every run; no step, request or value is part of it
    buffer: the buffer that is raced on, or that holds another's value
    op: the operation or host action that comes first, or that reads; other: the racing one
    edge: name of the edge that should order the two
    step: of the first place that differs; request: that it belongs to; layer: of the model
    field: what differs, as boundary.field; expected: what the reference has; actual: what was found
    replay: the command that shows it again
    """

    kind: FindingKind
    signature: str
    message: str
    buffer: str | None = None
    op: str | None = None
    other: str | None = None
    edge: str | None = None
    step: int | None = None
    request: str | None = None
    layer: int | None = None
    field: str | None = None
    expected: object = None
    actual: object = None
    replay: str = ""


ASSUMPTIONS = (
    "every access to shared memory goes through a recorded buffer, and operations touch only "
    "the rows they declare",
    "the device keeps the program's edges: issue order, stream order, events, host waits",
    "kernels are deterministic functions of the memory they declare",
    "no completion flag is queried (a query would be a branch on timing)",
)


_FINDINGS = (Verdict.DIVERGENT, Verdict.CONFLICT, Verdict.DEADLOCK)


def exit_code(verdicts: Collection[Verdict], *, benign: Benign = Benign.PASS) -> ExitCode:
    """What a command that came to these verdicts ends with."""
    if Verdict.BROKEN_HARNESS in verdicts:
        return ExitCode.BROKEN_HARNESS
    wrong = _FINDINGS if benign is Benign.PASS else (*_FINDINGS, Verdict.BENIGN)
    if any(verdict in wrong for verdict in verdicts):
        return ExitCode.FINDING
    if Verdict.INCONCLUSIVE in verdicts or not verdicts:
        return ExitCode.INCONCLUSIVE
    return ExitCode.CLEAN


def signature_of(findings: Sequence[Finding]) -> str | None:
    """What a failure is known by: the signature of its first wrong value, else of its race."""
    for finding in findings:
        if finding.kind is not FindingKind.CONFLICT:
            return finding.signature
    return findings[0].signature if findings else None


def request_of(findings: Sequence[Finding]) -> str | None:
    """The request that a failure concerns first."""
    named = [f.request for f in findings if f.kind is not FindingKind.CONFLICT and f.request]
    return named[0] if named else None
