"""The search: whether some landing that the program's edges allow changes what it observes.

Each conflict says which operation may come after which access. The operation is held back in a run
of its own, and the observations are compared with those of a run in which nothing was held. Where
the program polls, both are made with every answer to its queries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import product, zip_longest

import msgspec

from racegate.history.finding import Race, Verdict
from racegate.history.schedule import FORCED, Half, Hold, Holds
from racegate.history.verdict import NOTHING_TRIED, Facts, Reach, Tried, verdict_of
from racegate.interpose.device.copies import COPIES, WORD
from racegate.interpose.device.session import OTHER_THREADS
from racegate.interpose.outcome import Deferral, DeviceKind, Ending, Observation, Outcome, Plan
from racegate.targets.common.landings import (
    LandingRun,
    LandingRuns,
    combined,
    longest,
    number_of,
)
from racegate.targets.program.launch import DeviceServer, Program

QUERIES = "completion queries that no edge settles (the other answer is a branch)"
POLLS = 3  # how often a query is first answered "not ready", in runs that try that answer
PAIRS_MAX = 8  # per finding, tried one at a time
LEFT_MAX = 10**15  # of more combinations nobody needs the number, and JSON has no room for it
OnRun = Callable[[int, int], None]  # after each run: runs made, runs that may be made


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """What the search says of one finding.

    signature: the finding's; verdict: DIVERGENT, BENIGN or CONFLICT
    holds: the smallest set that shows it; is_smallest: none can be left out
    polls: how often queries were first answered "not ready" in that run
    expected: observations without holds; actual: with them; ending: how the run under them ended,
        if not as the other
    """

    signature: str
    verdict: Verdict
    holds: Holds = ()
    is_smallest: bool = True
    polls: int = 0
    expected: tuple[Observation, ...] = ()
    actual: tuple[Observation, ...] = ()
    ending: str = ""


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """What the search came to.

    judged: one per finding that was searched for; runs: how many were made
    deferral: what was late under holds; is_complete: every combination of landings was run
    left: combinations that were not, 10**15 for more than that
    limits: why a finding that did not show may yet be harmful
    is_interrupted: the user stopped it
    tried: what was tried besides the recorded run, which the verdicts rest on
    """

    judged: tuple[Judged, ...]
    runs: int
    is_complete: bool
    deferral: Deferral = Deferral.FULL
    left: int = 0
    limits: tuple[str, ...] = ()
    is_interrupted: bool = False
    tried: Tried = NOTHING_TRIED


class Runs(LandingRuns[Outcome]):
    """Runs of a program, compared with the one without holds.

    bases: by how often queries are answered "not ready", the run without holds
    unstable: names of observations that differ from run to run without any hold
    tears: whether the device can land a copy in two halves
    """

    def __init__(
        self,
        device: DeviceServer,
        program: Program,
        bases: dict[int, Outcome],
        on_run: OnRun,
        runs_max: int,
    ) -> None:
        super().__init__(self._run, runs_max=runs_max, answers=tuple(bases), on_run=on_run)
        self._device = device
        self._program = program
        self.bases = bases
        self.tears = device.kind is DeviceKind.VIRTUAL
        self.unstable: set[str] = set()
        control = self.under(()).what
        self.unstable = changed(bases[0].observations, control.observations)
        self.is_stable = control.ending is bases[0].ending

    def _run(self, holds: Holds, polls: int) -> LandingRun[Outcome]:
        plan = Plan(holds=holds, polls=polls, is_recording=False)
        outcome = self._device.run(self._program, plan, is_quiet=True)
        is_decided = outcome.ending not in UNDECIDED
        return LandingRun(
            holds=holds,
            polls=polls,
            what=outcome,
            is_decided=is_decided,
            is_realised=all(outcome.realised.values()),
            is_harmful=is_decided and self._differs(outcome, self.bases[polls]),
        )

    def _differs(self, outcome: Outcome, base: Outcome) -> bool:
        """Whether the program observes something else, or ends otherwise."""
        if (outcome.ending, outcome.exit_code) != (base.ending, base.exit_code):
            return True
        return bool(changed(base.observations, outcome.observations) - self.unstable)


# Of a run under holds: a program that waits for a value without a wait ends when the hold does.
UNDECIDED = (Ending.TIMED_OUT, Ending.NOT_MODELLED, Ending.INTERRUPTED)


def changed(one: tuple[Observation, ...], other: tuple[Observation, ...]) -> set[str]:
    """Names of observations that differ, by their order."""
    names: set[str] = set()
    for a, b in zip_longest(one, other):
        if a is None or b is None or (a.name, a.digest) != (b.name, b.digest):
            names |= {item.name for item in (a, b) if item is not None}
    return names


class Found(msgspec.Struct, frozen=True):
    """A run that does harm, and whether none of its holds can be left out."""

    attempt: LandingRun[Outcome]
    is_smallest: bool


class _Looking:
    """One search as it goes on. divergent: by signature, what shows the finding"""

    def __init__(self, runs: Runs, findings: tuple[Race, ...]) -> None:
        self.runs = runs
        self.findings = findings
        self.landings = _landings(findings)
        self.divergent: dict[str, Found] = {}
        self.is_interrupted = False

    def look(self) -> None:
        """One operation at a time, then all together, then halves of copies, then, if nothing
        shows, every combination of whole operations.
        """
        if not self.runs.is_stable:
            return
        try:
            for finding in self.findings:
                if finding.signature not in self.divergent:
                    self._try(_alone(finding, self.landings))
            while self._try(iter([self._all_late()])):
                pass
            for finding in self.findings:
                if finding.signature not in self.divergent:
                    self._try(self._torn(finding))
            if not self.divergent:
                self._try(combined(self.landings))
        except KeyboardInterrupt:
            self.is_interrupted = True

    def left(self) -> int:
        """Combinations of landings, and halves of copies, with every answer to queries, that were
        not run.
        """
        every = number_of(self.landings)
        torn = {holds for finding in self.findings for holds in self._torn(finding)}
        tried = len(self.runs.held)
        return min(LEFT_MAX, max(0, (every + len(torn)) * len(self.runs.bases) - tried))

    def _torn(self, finding: Race) -> Iterator[Holds]:
        """One copy of the finding in two halves, each of them late as long as it may be."""
        if not self.runs.tears or finding.nbytes <= WORD:
            return
        for first in _held_alone(finding):
            if first.startswith(COPIES):
                for until, half in product(reversed(self.landings[first]), Half):
                    yield (Hold(op=first, until=until, half=half),)

    def _try(self, source: Iterable[Holds]) -> bool:
        """Until one shows something; whether one did."""
        harmful = self.runs.first_harm(source)
        if harmful is not None:
            self._blame(Found(*self.runs.smallest(harmful)))
        return harmful is not None

    def _all_late(self) -> Holds:
        """All operations of findings that nothing has shown yet, except those that show others."""
        shown = {hold.op for found in self.divergent.values() for hold in found.attempt.holds}
        operations = {
            first
            for finding in self.findings
            if finding.signature not in self.divergent
            for first, _ in finding.pairs
        }
        return longest(first for first in self.landings if first in operations - shown)

    def _blame(self, found: Found) -> None:
        held = {hold.op for hold in found.attempt.holds}
        for finding in self.findings:
            if any(first in held for first, _ in finding.pairs):
                self.divergent.setdefault(finding.signature, found)

    def limits(self) -> tuple[str, ...]:
        """Why what did not show may yet be harmful."""
        runs, reasons = self.runs, []
        if not runs.is_stable:
            reasons.append("a second run without holds ended differently: nothing can be compared")
        if runs.unstable:
            names = ", ".join(sorted(runs.unstable))
            reasons.append(
                f"not compared, because it differs from run to run without holds: {names}"
            )
        if OTHER_THREADS in runs.bases[0].not_seen:
            reasons.append("host threads of the program run in one order only")
        undecided = sum(not attempt.is_decided for attempt in runs.made.values())
        if undecided:
            reasons.append(f"{undecided} runs under holds did not come to an end")
        realised = {attempt.holds for attempt in runs.held if attempt.is_realised}
        unrealised = len({attempt.holds for attempt in runs.held} - realised)
        if unrealised:
            reasons.append(f"{unrealised} sets of holds of which one kept nothing back")
        for finding in self.findings:
            if finding.signature not in self.divergent and _has_more_orders(finding):
                reasons.append(
                    f"[{finding.signature}]: threads and parts of a graph have more orders"
                )
        return tuple(reasons)


def search(
    device: DeviceServer,
    program: Program,
    base: Outcome,
    *,
    runs_max: int,
    polled: Outcome | None = None,
    on_run: OnRun = lambda made, most: None,
) -> Search:
    """base: the outcome of the run in which every operation ran at once; polled: of one in which
    queries were first answered "not ready", if the program queries.
    """
    bases = {0: base} if polled is None else {0: base, POLLS: polled}
    try:
        looking = _Looking(Runs(device, program, bases, on_run, runs_max), base.findings)
    except KeyboardInterrupt:
        return Search(judged=(), runs=0, is_complete=False, is_interrupted=True)
    looking.look()
    left, limits = looking.left(), looking.limits()
    is_complete = not (left or limits or looking.divergent)
    reach = Reach.COMBINATIONS if is_complete else Reach.SOME
    known = 0 if left == LEFT_MAX else len(looking.runs.held) + left
    tried = looking.runs.tried(reach, known=known)
    judged = tuple(_judge(finding, looking, tried) for finding in base.findings)
    return Search(
        judged=judged,
        runs=len(looking.runs.made),
        is_complete=is_complete,
        left=left,
        limits=limits,
        is_interrupted=looking.is_interrupted,
        tried=tried,
    )


def _landings(findings: tuple[Race, ...]) -> dict[str, tuple[str, ...]]:
    """Per operation that can be held, before which accesses it may land, latest last."""
    landings: dict[str, list[str]] = {}
    hosts: set[str] = set()
    for finding in findings:
        for first, second in finding.pairs:
            landings.setdefault(first, []).append(second)
            if finding.first.is_host:
                hosts.add(first)
    return {
        first: (FORCED,) if first in hosts else (*dict.fromkeys(seconds[1:]), FORCED)
        for first, seconds in landings.items()
    }


def _alone(finding: Race, landings: dict[str, tuple[str, ...]]) -> Iterator[Holds]:
    """One operation of the finding held, as long as it may be."""
    for first in _held_alone(finding):
        for until in reversed(landings.get(first, ())):
            yield (Hold(op=first, until=until),)


def _held_alone(finding: Race) -> list[str]:
    return list(dict.fromkeys(first for first, _ in finding.pairs))[:PAIRS_MAX]


def _has_more_orders(finding: Race) -> bool:
    """Whether holding the first operation back is not all that could happen: a thread goes on when
    another waits for it, and the parts of a graph run at times of their own.
    """
    return finding.first.is_host or "graph" in (finding.first.operation, finding.second.operation)


def _judge(finding: Race, looking: _Looking, tried: Tried) -> Judged:
    found = looking.divergent.get(finding.signature)
    base = looking.runs.bases[0]
    if found is None:
        facts = Facts(conflicts=1, is_compared=bool(base.observations), tried=tried)
        return Judged(signature=finding.signature, verdict=verdict_of(facts))
    expected = looking.runs.bases[found.attempt.polls]
    actual = found.attempt.what
    is_same = (actual.ending, actual.exit_code) == (expected.ending, expected.exit_code)
    return Judged(
        signature=finding.signature,
        verdict=Verdict.DIVERGENT,
        holds=found.attempt.holds,
        is_smallest=found.is_smallest,
        polls=found.attempt.polls,
        expected=expected.observations,
        actual=actual.observations,
        ending="" if is_same else actual.message or f"{actual.ending}: {actual.exit_code}",
    )
