"""Finding and Verdict: what a run showed, as data. Rendering is the report's business."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import StrEnum

import msgspec

from racegate.history.exit_code import ExitCode


class Verdict(StrEnum):
    """What is known about a scenario under a fault after the runs made.

    PROVED: no conflict in one run, so every schedule has the same outcome, and the outcome is right
    BENIGN: conflicts, but at least each landing of each operation was tried, all of them had one
        right outcome, and the run exercised what it had to; what was tried stands beside it
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
    """What BENIGN is for a job: a pass, or, strictly, a finding like any other unordered pair,
    whatever was tried.
    """

    PASS = "pass"
    FINDING = "finding"


class FindingKind(StrEnum):
    """What is wrong.

    CONFLICT: two accesses that nothing orders, so that some schedule turns them round
    DIVERGENCE: a value that is not the reference's
    OWNERSHIP: a value of another request or step where this one's was meant
    PAGE: a copy between tiers of memory that meets a block of another owner, or at a wrong time,
        although everything was waited for
    INVARIANT: a law of the runner that does not hold
    LOSS: delivered tokens that plain decoding does not give
    DEADLOCK: a wait that nothing can end
    CRASH: the engine stopped on an error
    FOOTPRINT: an operation wrote rows that it had not declared, so that nothing could order it
    CHANGE: a value that a change observes otherwise than its base, although nothing was held
    MISMATCH: ranks of a program that issue different collectives where one is meant
    ORDER: ranks that use two communicators in opposite orders
    """

    CONFLICT = "conflict"
    DIVERGENCE = "divergence"
    OWNERSHIP = "ownership"
    PAGE = "page"
    INVARIANT = "invariant"
    LOSS = "loss"
    DEADLOCK = "deadlock"
    CRASH = "crash"
    FOOTPRINT = "footprint"
    CHANGE = "change"
    MISMATCH = "mismatch"
    ORDER = "order"


class Hazard(StrEnum):
    """What kind of danger a finding is, named by what the later access does to the earlier one.

    READ_AFTER_WRITE: a value is read that may not have been written yet
    WRITE_AFTER_READ: a value is overwritten that may not have been read yet
    WRITE_AFTER_WRITE: of two values that are written the wrong one may stay
    REUSE: memory was freed and handed out again while an operation may still use it
    OUTSIDE: one access, beyond the memory that its kernel was given
    UNINITIALISED: one access, of memory that nothing has written, and that what follows depends on
    VALUE_OF_ANOTHER: a value of another request or step is read, whatever the order
    WRONG_VALUE: a value is wrong, and no two accesses without an order are known for it
    """

    READ_AFTER_WRITE = "read after write"
    WRITE_AFTER_READ = "write after read"
    WRITE_AFTER_WRITE = "write after write"
    REUSE = "reuse of memory"
    OUTSIDE = "access outside"
    UNINITIALISED = "uninitialised read"
    VALUE_OF_ANOTHER = "value of another"
    WRONG_VALUE = "wrong value without a race"


def hazard_of(*, first_writes: bool, second_writes: bool, is_reuse: bool = False) -> Hazard:
    """The hazard of two accesses to the same memory that nothing orders.

    is_reuse: the memory was freed and handed out again between the two
    """
    if is_reuse:
        return Hazard.REUSE
    if not second_writes:
        return Hazard.READ_AFTER_WRITE
    return Hazard.WRITE_AFTER_WRITE if first_writes else Hazard.WRITE_AFTER_READ


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
    FindingKind.PAGE: Oracle.OWNERSHIP,
    FindingKind.DIVERGENCE: Oracle.STEPWISE,
    FindingKind.INVARIANT: Oracle.INVARIANTS,
    FindingKind.LOSS: Oracle.LOSSLESSNESS,
}


Frame = tuple[str, int, str]  # file, line, qualified name of the function
Stack = tuple[Frame, ...]  # innermost first


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two accesses of a race in a program.

    operation: its kind; label: kind, file, function and count, as holds name it
    lane: the stream or thread; is_host: it is an access of a thread; is_write: it writes
    stack: the program's frames (file, line, function), innermost first
    within: those of torch inside the innermost, where that is the same for both accesses
    made: where the program made the stream, likewise; empty where nobody knows
    """

    operation: str
    label: str
    lane: str
    is_host: bool
    is_write: bool
    stack: Stack
    within: Stack = ()
    made: Stack = ()

    @property
    def frames(self) -> Stack:
        """All frames that tell the access from the other, innermost first."""
        return self.within + self.stack

    @property
    def place(self) -> str:
        """The file and the line of the innermost frame that tells it from the other access."""
        return place_name(self.frames)


def place_name(stack: Stack) -> str:
    """The file and the line of the innermost frame of the program, as `file:line`."""
    return f"{stack[0][0].rpartition('/')[2]}:{stack[0][1]}" if stack else "an unknown place"


class Race(msgspec.Struct, frozen=True, kw_only=True):
    """Two places of a program, or of a release, that touch the same bytes without an order.

    signature: the same in every run, and when lines move; hazard: which kind of danger it is
    buffer: what holds the bytes; nbytes: of the first example; count: how many pairs
    first, second: the two of the first example
    edge: what would order them, in words; pairs: the labels of all pairs, for the search
    cause: an edge that orders them and all others of the same cause, in words; empty: as `edge`
    allocated: where the program asked for the memory, innermost first; empty where nobody knows
    late: the frames of a wait that stands too late, where moving it orders them
    """

    signature: str
    hazard: Hazard
    buffer: str
    nbytes: int
    count: int
    first: Side
    second: Side
    edge: str
    pairs: tuple[tuple[str, str], ...]
    cause: str = ""
    allocated: Stack = ()
    late: Stack = ()

    @property
    def missing(self) -> str:
        """The edge that it lacks, in words: that of its cause, where several lack one."""
        return self.cause or self.edge

    @property
    def message(self) -> str:
        """The two accesses, and what would order them, in words."""
        verbs = ["writes" if side.is_write else "reads" for side in (self.first, self.second)]
        if self.hazard in (Hazard.OUTSIDE, Hazard.UNINITIALISED):
            return f"{self.first.label} {verbs[0]} {self.buffer} ({self.hazard}): {self.edge}"
        return (
            f"{self.first.label} {verbs[0]} and {self.second.label} {verbs[1]} {self.buffer}, and "
            f"no path of edges orders them ({self.hazard}): {self.edge}"
        )


class KernelTotal(msgspec.Struct, frozen=True, kw_only=True):
    """The launches of one Triton kernel in a run, looked at from inside.

    name: of the kernel; file, line: where its function stands
    launches: how many were judged; programs: of all of them, those that touched memory
    findings: pairs of lines that race; untold: pairs of lines whose order cannot be told
    """

    name: str
    file: str
    line: int
    launches: int
    programs: int
    findings: int
    untold: int


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """One missing edge. edge: in words; signatures: of the races that it orders, at least one"""

    edge: str
    signatures: tuple[str, ...]


def causes_of(races: Sequence[Race]) -> tuple[Cause, ...]:
    """The missing edges of races, in the order in which the races were found."""
    found: dict[str, list[str]] = {}
    for race in races:
        found.setdefault(race.missing, []).append(race.signature)
    return tuple(Cause(edge=edge, signatures=tuple(names)) for edge, names in found.items())


def by_cause(races: Sequence[Race]) -> list[list[Race]]:
    """Races that lack one edge, in one list each."""
    known = {race.signature: race for race in races}
    return [[known[signature] for signature in cause.signatures] for cause in causes_of(races)]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One defect seen in a run. Fields that mean nothing for its kind are None.

    kind: what is wrong; message: the same in words, with what to do about it
    hazard: which kind of danger it is; None of a crash or a deadlock, and of a wrong value in a run
        that has a race or a value of another, which may be its cause
    signature: the same for the same defect in every run; no step, request or value is part of it,
        but of a change, which is what it is by its values
    buffer: the buffer that is raced on, or that holds another's value
    op: the operation or host action that comes first, or that reads; other: the racing one
    edge: name of the edge that should order the two
    step: of the first place that differs; request: that it belongs to; layer: of the model
    field: what differs, as boundary.field; expected: what the reference has; actual: what was found
    replay: the command that shows it again
    verdict: what a search came to for this finding alone, null without one
    holds: the smallest ones under which it does harm, as text
    race: of a program or a release, the two places with their stacks
    rank: whose value differs, of an engine of several
    """

    kind: FindingKind
    signature: str
    message: str
    hazard: Hazard | None = None
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
    verdict: Verdict | None = None
    holds: tuple[str, ...] = ()
    race: Race | None = None
    rank: int | None = None

    @property
    def cause(self) -> str:
        """What the findings of one cause have in common: the edge that is missing, the field that
        changed (its values are other ones in each scenario), of others the signature.
        """
        if self.kind is FindingKind.CHANGE and self.field is not None:
            return f"change/{self.field.partition('[')[0]}"
        return self.signature if self.race is None else self.race.missing


def one_per_cause(findings: Sequence[Finding]) -> list[list[Finding]]:
    """Findings that lack one edge, in one list each, in the order in which they were found."""
    found: dict[str, list[Finding]] = {}
    for one in findings:
        found.setdefault(one.cause, []).append(one)
    return list(found.values())


# What a user sees of a failure.
_SEEN = (FindingKind.LOSS, FindingKind.DEADLOCK, FindingKind.CRASH)
# Findings that say no more than that something is wrong.
_EFFECTS = (FindingKind.DIVERGENCE, FindingKind.INVARIANT, FindingKind.LOSS)


def with_hazards(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """The findings of one run, where a wrong value that has no race beside it says so."""
    if any(finding.hazard is not None for finding in findings):
        return tuple(findings)
    return tuple(
        msgspec.structs.replace(finding, hazard=Hazard.WRONG_VALUE)
        if finding.kind in _EFFECTS
        else finding
        for finding in findings
    )


def finding_of(race: Race) -> Finding:
    """A race of a program or of a release as a finding, before anybody searched."""
    return Finding(
        kind=FindingKind.CONFLICT,
        signature=race.signature,
        message=race.message,
        hazard=race.hazard,
        buffer=race.buffer,
        op=race.first.label,
        other=race.second.label,
        race=race,
    )


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


def counted_finding(
    verdict: Verdict, findings: Sequence[Finding], *, benign: Benign = Benign.PASS
) -> Finding | None:
    """The finding that a job counts: None where the exit code of the verdict says that nothing is
    wrong, or that too little was exercised.
    """
    code = exit_code([verdict], benign=benign)
    is_counted = code in (ExitCode.FINDING, ExitCode.BROKEN_HARNESS)
    return failure_in(findings) if is_counted else None


def failure_in(findings: Sequence[Finding]) -> Finding | None:
    """The finding that a failure is known by: its first wrong value, else its first race."""
    wrong = (finding for finding in findings if finding.kind is not FindingKind.CONFLICT)
    return next(wrong, findings[0] if findings else None)


def is_seen(findings: Sequence[Finding]) -> bool:
    """Whether a user sees that something is wrong: in the tokens, or because the engine stops."""
    return any(finding.kind in _SEEN for finding in findings)


def signature_of(findings: Sequence[Finding]) -> str | None:
    """The signature that a failure is known by."""
    failure = failure_in(findings)
    return None if failure is None else failure.signature


def request_of(findings: Sequence[Finding]) -> str | None:
    """The request that a failure concerns first."""
    named = [f.request for f in findings if f.kind is not FindingKind.CONFLICT and f.request]
    return named[0] if named else None
