"""The search: whether some landing that the program's edges allow changes what it observes.

Each conflict says which operation may come after which access. The operation is held back in a run
of its own, and the observations are compared with those of a run in which nothing was held. Where
the program polls, both are made with every answer to its queries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations, product, zip_longest
from math import prod

import msgspec

from racegate.history.finding import Race, Verdict
from racegate.history.schedule import FORCED, Half
from racegate.history.verdict import NOTHING_TRIED, Facts, Reach, Tried, verdict_of
from racegate.interpose.device.copies import COPIES, WORD, whole
from racegate.interpose.device.session import OTHER_THREADS
from racegate.interpose.outcome import Deferral, DeviceKind, Ending, Observation, Outcome, Plan
from racegate.targets.program.launch import Device, Program

QUERIES = "completion queries that no edge settles (the other answer is a branch)"
POLLS = 3  # how often a query is first answered "not ready", in runs that try that answer
PAIRS_MAX = 8  # per finding, tried one at a time
LEFT_MAX = 10**15  # of more combinations nobody needs the number, and JSON has no room for it
SMALLER_MAX = 64  # runs for making one set of holds smaller, beyond those of the search
Holds = tuple[tuple[str, str], ...]
Told = Callable[[int, int], None]  # after each run: runs made, runs that may be made


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """What the search says of one finding.

    signature: the finding's; verdict: DIVERGENT, BENIGN or CONFLICT
    hold: the smallest set of (operation, until) that shows it; is_smallest: none can be left out
    polls: how often queries were first answered "not ready" in that run
    expected: observations without holds; actual: with them; ending: how the run under them ended,
        if not as the other
    """

    signature: str
    verdict: Verdict
    hold: Holds = ()
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


class Runs:
    """Runs of one search, each made once, and compared with the one without holds.

    bases: by how often queries are answered "not ready", the run without holds
    unstable: names of observations that differ from run to run without any hold
    tears: whether the device can land a copy in two halves
    """

    def __init__(
        self, device: Device, program: Program, bases: dict[int, Outcome], told: Told, runs_max: int
    ) -> None:
        self._device = device
        self._program = program
        self.bases = bases
        self.tears = device.kind is DeviceKind.VIRTUAL
        self._told = told
        self.runs_max = runs_max
        self.tried: dict[tuple[Holds, int], Outcome] = {}
        control = self.run((), 0)
        self.unstable = changed(bases[0].observations, control.observations)
        self.is_stable = control.ending is bases[0].ending

    @property
    def is_spent(self) -> bool:
        return len(self.tried) >= self.runs_max

    def tried_in(self, reach: Reach, *, left: int) -> Tried:
        """Sets of holds that did what they say, with every answer to queries."""
        did = [
            all(run.realised.values()) and run.ending not in UNDECIDED
            for (holds, _), run in self.tried.items()
            if holds
        ]
        known = 0 if left == LEFT_MAX else len(did) + left
        return Tried(reach=reach, number=sum(did), known=known)

    def run(self, holds: Holds, polls: int) -> Outcome:
        """The outcome under these holds, from before if it was run."""
        if (holds, polls) not in self.tried:
            plan = Plan(holds=holds, polls=polls, is_recording=False)
            self.tried[holds, polls] = self._device.run(self._program, plan, is_quiet=True)
            self._told(len(self.tried), self.runs_max)
        return self.tried[holds, polls]

    def is_harmful(self, holds: Holds, polls: int) -> bool:
        """Whether these holds change what the program observes, or how it ends."""
        outcome, base = self.run(holds, polls), self.bases[polls]
        if outcome.ending in UNDECIDED:
            return False
        if (outcome.ending, outcome.exit_code) != (base.ending, base.exit_code):
            return True
        return bool(changed(base.observations, outcome.observations) - self.unstable)

    def harm(self, holds: Holds) -> int | None:
        """With which answers to queries the holds are harmful; None if with none, or none left."""
        for polls in self.bases:
            if not self.is_spent and self.is_harmful(holds, polls):
                return polls
        return None


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
    """Holds that are harmful, with the answers to queries."""

    holds: Holds
    polls: int
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
        every = prod(1 + len(untils) for untils in self.landings.values()) - 1
        torn = {holds for finding in self.findings for holds in self._torn(finding)}
        tried = sum(bool(holds) for holds, _ in self.runs.tried)
        return min(LEFT_MAX, max(0, (every + len(torn)) * len(self.runs.bases) - tried))

    def _torn(self, finding: Race) -> Iterator[Holds]:
        """One copy of the finding in two halves, each of them late as long as it may be."""
        if not self.runs.tears or finding.nbytes <= WORD:
            return
        for first in _held_alone(finding):
            if first.startswith(COPIES):
                for until, half in product(reversed(self.landings[first]), Half):
                    yield ((f"{half.value}{first}", until),)

    def _try(self, candidates: Iterator[Holds]) -> bool:
        """Until one shows something; whether one did."""
        for holds in candidates:
            polls = self.runs.harm(holds) if holds else None
            if polls is not None:
                self._blame(self._smallest(holds, polls))
                return True
            if self.runs.is_spent:
                break
        return False

    def _all_late(self) -> Holds:
        """All operations of findings that nothing has shown yet, except those that show others."""
        shown = {
            whole(operation) for found in self.divergent.values() for operation, _ in found.holds
        }
        operations = {
            first
            for finding in self.findings
            if finding.signature not in self.divergent
            for first, _ in finding.pairs
        }
        return tuple((first, FORCED) for first in self.landings if first in operations - shown)

    def _smallest(self, holds: Holds, polls: int) -> Found:
        """By delta debugging (Zeller and Hildebrandt 2002): no single hold can be left out."""
        end = len(self.runs.tried) + SMALLER_MAX
        size = max(1, len(holds) // 2)
        while len(holds) > 1:
            start, before = 0, len(holds)
            while start < len(holds):
                fewer = holds[:start] + holds[start + size :]
                if len(self.runs.tried) >= end:
                    return Found(holds, polls, False)
                if fewer and self.runs.is_harmful(fewer, polls):
                    holds = fewer
                else:
                    start += size
            if size == 1 and len(holds) == before:
                break
            size = max(1, size // 2)
        return Found(holds, polls, True)

    def _blame(self, found: Found) -> None:
        held = {whole(operation) for operation, _ in found.holds}
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
        undecided = sum(outcome.ending in UNDECIDED for outcome in runs.tried.values())
        if undecided:
            reasons.append(f"{undecided} runs under holds did not come to an end")
        realised = {holds for (holds, _), run in runs.tried.items() if all(run.realised.values())}
        unrealised = len({holds for holds, _ in runs.tried} - realised)
        if unrealised:
            reasons.append(f"{unrealised} sets of holds of which one kept nothing back")
        for finding in self.findings:
            if finding.signature not in self.divergent and _has_more_orders(finding):
                reasons.append(
                    f"[{finding.signature}]: threads and parts of a graph have more orders"
                )
        return tuple(reasons)


def search(
    device: Device,
    program: Program,
    base: Outcome,
    *,
    runs_max: int,
    polled: Outcome | None = None,
    told: Told = lambda made, most: None,
) -> Search:
    """base: the outcome of the run in which every operation ran at once; polled: of one in which
    queries were first answered "not ready", if the program queries.
    """
    bases = {0: base} if polled is None else {0: base, POLLS: polled}
    try:
        looking = _Looking(Runs(device, program, bases, told, runs_max), base.findings)
    except KeyboardInterrupt:
        return Search(judged=(), runs=0, is_complete=False, is_interrupted=True)
    looking.look()
    left, limits = looking.left(), looking.limits()
    is_complete = not (left or limits or looking.divergent)
    tried = looking.runs.tried_in(Reach.COMBINATIONS if is_complete else Reach.SOME, left=left)
    judged = tuple(_judge(finding, looking, tried) for finding in base.findings)
    return Search(
        judged=judged,
        runs=len(looking.runs.tried),
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
            yield ((first, until),)


def _held_alone(finding: Race) -> list[str]:
    return list(dict.fromkeys(first for first, _ in finding.pairs))[:PAIRS_MAX]


def combined(landings: dict[str, tuple[str, ...]]) -> Iterator[Holds]:
    """Every combination of landings, few holds first."""
    for count in range(1, len(landings) + 1):
        for operations in combinations(landings, count):
            for untils in product(*(landings[operation] for operation in operations)):
                yield tuple(zip(operations, untils, strict=True))


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
    expected = looking.runs.bases[found.polls]
    actual = looking.runs.tried[found.holds, found.polls]
    is_same = (actual.ending, actual.exit_code) == (expected.ending, expected.exit_code)
    return Judged(
        signature=finding.signature,
        verdict=Verdict.DIVERGENT,
        hold=found.holds,
        is_smallest=found.is_smallest,
        polls=found.polls,
        expected=expected.observations,
        actual=actual.observations,
        ending="" if is_same else actual.message or f"{actual.ending}: {actual.exit_code}",
    )
