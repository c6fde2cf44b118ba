"""Outcome: one judged run as data; the `run` object of the JSON contract (docs/json.md)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from racegate.history.breakage import Breakage
from racegate.history.exit_code import ExitCode
from racegate.history.finding import (
    Benign,
    Finding,
    Verdict,
    exit_code,
    failure_in,
    is_seen,
)
from racegate.history.stats import Stats
from racegate.history.trace import HoldOutcome
from racegate.history.verdict import NOTHING_TRIED, Tried, verdict_text
from racegate.scenario.config import OptionChange
from racegate.scenario.strict import StrictStruct

SCHEMA = "racegate/1"


class SearchSummary(msgspec.Struct, frozen=True, kw_only=True):
    """How a verdict was searched for.

    first_conflicts: conflicts of the eager run, which comes first
    stage: the last rung of the ladder that was needed
    schedules: of all kinds; shared: those of them of which the rest was known from another
    classes: of equivalent schedules, run so far; estimate: of all of them; None if not enumerated
    is_complete: every class was run
    seconds_left: what running the estimated remaining classes would take
    """

    first_conflicts: int
    stage: str
    schedules: int
    shared: int = 0
    classes: int | None
    estimate: float | None
    is_complete: bool
    seconds: float
    seconds_left: float | None


class Comparison(StrictStruct, frozen=True, kw_only=True):
    """One scenario on a changed engine beside the same scenario on its base, under the same plans.

    base: what it is compared with, in words
    changed: the first value that the change observes otherwise although nothing is held, if any
    new: conflicts that the base has not, or in which landings do more harm than there
    repaired: conflicts of the base that are gone, or in which landings do less harm, by signature
    known: how many conflicts both have, with the same effect
    unmet: in words, what is not met although the base meets it, or why nothing could be compared
    failed: the error that it ends with on both sides, so that no more of it is compared; empty if
        it comes to its end
    """

    base: str
    changed: Finding | None = None
    new: tuple[Finding, ...] = ()
    repaired: tuple[str, ...] = ()
    known: int = 0
    unmet: tuple[str, ...] = ()
    failed: str = ""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What the change shows and the base does not."""
        return (*(() if self.changed is None else (self.changed,)), *self.new)

    def replayed_by(self, command: str) -> Comparison:
        """The same, where a finding that no hold shows is shown again by this command."""
        changed, *new = (
            one if one is None or one.replay else msgspec.structs.replace(one, replay=command)
            for one in (self.changed, *self.new)
        )
        return msgspec.structs.replace(self, changed=changed, new=tuple(new))

    @property
    def text(self) -> str:
        """In a line."""
        said = [f"{self.changed.field} is changed"] if self.changed is not None else []
        said += [f"{len(self.new)} new"] if self.new else []
        said += ["not wholly compared"] if self.unmet else []
        said += ["both end with an error"] if self.failed else []
        return f"{', '.join(said) or 'no difference'}, beside {self.base}"

    @property
    def code(self) -> ExitCode:
        """What a gate ends with that asks for this scenario alone: what base and change have in
        common is no finding, whatever its verdict.
        """
        if self.findings:
            return ExitCode.FINDING
        return ExitCode.INCONCLUSIVE if self.unmet else ExitCode.CLEAN


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """One scenario or program judged: what every command prints, whatever the target.

    scenario: its name, or that of the program; schedule: the holds, as text
    target: which adapter, release or program ran it, in words; empty of our own engine
    tried: what was tried besides the recorded run, which the verdict rests on
    holds: what became of each; not_seen: what the verdict does not cover, in words
    message: how the run ended, if not by itself; refused: why the target does not run this
    is_lost: the target's process was gone or took too long, so that another run may say more
    comparison: of a change: what differs from its base, None if nobody asked
    resolved: options of the script that gave way to others, which warnings say in words
    search: how the verdict was searched for, None for a single run
    breakages: errors of the harness: what it has found stays, what it has not nobody knows
    """

    schema: str = SCHEMA
    scenario: str
    device: str
    config: dict[str, dict[str, object]] = {}
    fault: str | None = None
    schedule: tuple[str, ...] = ()
    verdict: Verdict
    findings: tuple[Finding, ...] = ()
    stats: Stats = Stats()
    holds: tuple[HoldOutcome, ...] = ()
    unmet: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    resolved: tuple[OptionChange, ...] = ()
    search: SearchSummary | None = None
    breakages: tuple[Breakage, ...] = ()
    tried: Tried = NOTHING_TRIED
    target: str = ""
    not_seen: tuple[str, ...] = ()
    message: str = ""
    refused: str = ""
    is_lost: bool = False
    comparison: Comparison | None = None

    @property
    def text(self) -> str:
        """The verdict as it is printed, with what was tried."""
        return verdict_text(self.verdict, self.tried)

    def gate_code(self, benign: Benign = Benign.PASS) -> ExitCode:
        """What a gate of this scenario alone ends with: beside a base, what differs from it
        decides. benign: what BENIGN is where nothing was compared
        """
        if self.comparison is not None:
            return self.comparison.code
        return exit_code([self.verdict], benign=benign)


UNAUDITED = (
    "footprints were not audited: that operations touch only the rows they declare is assumed, and "
    "was not checked"
)


def unaudited(result: RunResult) -> RunResult:
    """The result of a run without an audit, which says so."""
    return msgspec.structs.replace(result, warnings=(*result.warnings, UNAUDITED))


class SharedFinding(msgspec.Struct, frozen=True, kw_only=True):
    """What several scenarios fail with, and findings that lack one edge, known by the signature of
    the first.

    seen: the runs with the finding of each; first the one that tells most: in which a user sees
        what is wrong, then in which something is, and of those the smallest
    """

    signature: str
    seen: tuple[tuple[RunResult, Finding], ...]

    @property
    def scenarios(self) -> tuple[str, ...]:
        """The names of those that show it."""
        return tuple(dict.fromkeys(run.scenario for run, _ in self.seen))

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Of its cause, each once, the one that tells most first."""
        told: dict[str, Finding] = {}
        for _, one in self.seen:
            told.setdefault(one.signature, one)
        return tuple(told.values())


def shared_findings(
    results: Sequence[RunResult], *, benign: Benign = Benign.PASS
) -> tuple[SharedFinding, ...]:
    """What a job counts, each cause once; first what most scenarios show. benign: what BENIGN is
    for it
    """
    found: dict[str, list[tuple[RunResult, Finding]]] = {}
    for run in results:
        for finding in _counted_in(run, benign):
            found.setdefault(finding.cause, []).append((run, finding))
    sorted_first = [tuple(sorted(seen, key=_told_first)) for seen in found.values()]
    shared = [SharedFinding(signature=seen[0][1].signature, seen=seen) for seen in sorted_first]
    return tuple(sorted(shared, key=lambda one: -len(one.scenarios)))


def _counted_in(run: RunResult, benign: Benign) -> tuple[Finding, ...]:
    """The findings of a run that have a verdict of their own, and else the one that it is known
    by.
    """
    if exit_code([run.verdict], benign=benign) is not ExitCode.FINDING:
        return ()
    verdicts = [(one, one.verdict) for one in run.findings if one.verdict is not None]
    wrong = [one for one, said in verdicts if exit_code([said], benign=benign)]
    if wrong:
        return (*(one for one in run.findings if one.verdict is None), *wrong)
    failure = failure_in(run.findings)
    return () if failure is None else (failure,)


def _told_first(seen: tuple[RunResult, Finding]) -> tuple[bool, bool, int, int]:
    run, finding = seen
    verdict = run.verdict if finding.verdict is None else finding.verdict
    holds = finding.holds or run.schedule
    return (not is_seen(run.findings), verdict is not Verdict.DIVERGENT, len(holds), run.stats.ops)


class Failing(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is wrong, as CI services are told it.

    name: of the scenario, the program or a witness's file; file, line: where it comes from
    kind: of the finding, `inconclusive`, `missed`, `stale` or `broken`
    signature: what it is known by
    message: a paragraph; replay: the command that shows it again, empty if there is none
    is_known: it stands in the baseline, or is suppressed; reason: why, if somebody said
    also: signatures of the other findings of its cause, which are known if it is
    """

    name: str
    file: str
    kind: str
    signature: str
    message: str
    line: int = 1
    replay: str = ""
    is_known: bool = False
    reason: str = ""
    also: tuple[str, ...] = ()


class CheckedCase(msgspec.Struct, frozen=True, kw_only=True):
    """What a job looked at. group: of cases; failing: what is wrong with it

    said: what else is told of it; skipped: why it was not looked at, if it was not
    """

    group: str
    name: str
    seconds: float = 0.0
    said: str = ""
    skipped: str = ""
    failing: tuple[Failing, ...] = ()


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """A job as CI services are told it. has_baseline: known findings may stand"""

    cases: tuple[CheckedCase, ...]
    exit_code: int
    has_baseline: bool = False

    @property
    def failing(self) -> tuple[Failing, ...]:
        """Of all cases, in their order."""
        return tuple(one for case in self.cases for one in case.failing)
