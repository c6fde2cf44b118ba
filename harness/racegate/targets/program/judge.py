"""What is run to judge a program, and what all of it says together."""

from __future__ import annotations

import time

import msgspec

from racegate.history.finding import Benign, Race, Verdict, exit_code
from racegate.history.outcome import SCHEMA
from racegate.history.schedule import Holds, parse_holds
from racegate.history.verdict import (
    NOTHING_TRIED,
    Facts,
    Reach,
    Tried,
    unrealised_text,
    verdict_of,
    verdict_text,
)
from racegate.interpose.errors import INTERRUPTED, ExitCode
from racegate.interpose.outcome import DeviceKind, Ending, Outcome, Plan
from racegate.scenario.strict import StrictStruct
from racegate.targets.common.server import PrintPlace
from racegate.targets.program.explore import (
    POLLS,
    QUERIES,
    UNDECIDED,
    OnRun,
    Search,
    changed,
    search,
)
from racegate.targets.program.launch import DeviceServer, Program, open_device

# A run under holds may take as long as the recorded run so many times, and this much more.
TIMES_MAX, MORE_S = 20, 30.0
NO_WORK = "the program gave the device no work: no operation, no memory, no access of pinned memory"
CHILDREN_WORK = "operations and memory of processes that the program forked, which nobody judges"


class Suppression(StrictStruct, frozen=True, kw_only=True):
    """A finding that somebody looked at and lets stand. signature: the finding's; reason: why"""

    signature: str
    reason: str


class Verdicts(msgspec.Struct, frozen=True, kw_only=True):
    """What all runs of a program say together.

    outcome: of the recorded run, with the findings of all
    polled: of a second one, in which queries were first answered "not ready", if there are any
    search: what the search added, null without one
    suppressed: findings that are let stand; stale: suppressions that matched nothing
    benign: what a finding is of which every landing was tried without harm
    unheld: of a run under holds that somebody named: the recorded one, in which nothing was held
    changes: what these holds change: names of observations, or how the program ends
    """

    schema: str = SCHEMA
    outcome: Outcome
    polled: Outcome | None = None
    search: Search | None = None
    suppressed: tuple[Suppression, ...] = ()
    stale: tuple[Suppression, ...] = ()
    benign: Benign = Benign.PASS
    unheld: Outcome | None = None
    changes: tuple[str, ...] = ()

    @property
    def is_finished(self) -> bool:
        """Whether the program came to its end."""
        return self.outcome.ending is Ending.FINISHED

    @property
    def polls_matter(self) -> tuple[str, ...]:
        """Observations that differ with the answers to completion queries, or how it ended."""
        polled = self.polled
        if polled is None or polled.ending in UNDECIDED:
            return ()
        if polled.ending is not Ending.FINISHED:
            return (f"how the program ends: {polled.message or polled.exit_code}",)
        return tuple(sorted(changed(self.outcome.observations, polled.observations)))

    @property
    def open_findings(self) -> tuple[Race, ...]:
        """Conflicts that are neither suppressed nor pass because they are known to be benign."""
        search, done = self.search, set()
        if search is not None and self.benign is Benign.PASS:
            done = {j.signature for j in search.judged if j.verdict is Verdict.BENIGN}
        return tuple(f for f in self._standing if f.signature not in done)

    @property
    def _standing(self) -> tuple[Race, ...]:
        """Conflicts that nobody lets stand."""
        done = {suppression.signature for suppression in self.suppressed}
        return tuple(f for f in self.outcome.findings if f.signature not in done)

    @property
    def exit_code(self) -> int:
        """0 no conflict, 1 a finding, 2 bad input, 3 not modelled, 4 a hold that kept nothing back,
        130 stopped by the user; a script that failed by itself keeps its own: 128 and the number of
        a signal that ended it.
        """
        outcome = self.outcome
        if outcome.ending is Ending.INTERRUPTED or (self.search and self.search.is_interrupted):
            return INTERRUPTED
        if outcome.ending is Ending.NOT_MODELLED:
            return ExitCode.NOT_MODELLED
        if self.changes:
            return ExitCode.FINDING
        if outcome.ending is not Ending.FINISHED:
            code = outcome.exit_code
            return 128 - code if code < 0 else code or ExitCode.BAD_INPUT
        code = exit_code([self.verdict], benign=self.benign)
        return ExitCode.BAD_INPUT if self.stale and code is ExitCode.CLEAN else code

    @property
    def verdict(self) -> Verdict:
        """The table's word for all runs of a program that came to its end."""
        outcome, search = self.outcome, self.search
        facts = Facts(
            is_wrong=bool(self.changes or self.polls_matter)
            or any(one.verdict is Verdict.DIVERGENT for one in (search.judged if search else ())),
            conflicts=len(self._standing),
            unmet=self.unmet,
            is_compared=bool(outcome.observations),
            tried=self.tried,
        )
        return verdict_of(facts)

    @property
    def unmet(self) -> tuple[str, ...]:
        """Why a run in which nothing is wrong would be no proof."""
        unrealised = [hold for hold, count in self.outcome.realised.items() if not count]
        return (*self.unjudged, *map(unrealised_text, unrealised))

    @property
    def unjudged(self) -> tuple[str, ...]:
        """Why the runs say nothing of the program, or not of all of it."""
        outcome = self.outcome
        if not self.is_finished:
            return ()
        reasons = [NO_WORK] if outcome.work == 0 else []
        if outcome.work_of_children:
            reasons.append(f"{CHILDREN_WORK}: {outcome.work_of_children}")
        return tuple(reasons)

    @property
    def tried(self) -> Tried:
        """What was tried besides the recorded run: by the search, or by one hold."""
        if self.search is not None:
            return self.search.tried
        is_held = self.unheld is not None and all(self.outcome.realised.values())
        return Tried(reach=Reach.SOME, number=1) if is_held else NOTHING_TRIED

    @property
    def text(self) -> str:
        """The verdict as it is printed, with what was tried."""
        return verdict_text(self.verdict, self.tried)


def judge(
    program: Program,
    *,
    explores: bool,
    runs_max: int,
    suppressions: tuple[Suppression, ...] = (),
    stdout: PrintPlace = PrintPlace.PLAIN,
    kind: DeviceKind = DeviceKind.VIRTUAL,
    on_run: OnRun = lambda made, most: None,
) -> Verdicts:
    """Judges a program on a device of its own. on_run: after each run of the search."""
    with open_device(kind, stdout=stdout) as device:
        return judge_on(
            device,
            program,
            explores=explores,
            runs_max=runs_max,
            suppressions=suppressions,
            on_run=on_run,
        )


def judge_on(
    device: DeviceServer,
    program: Program,
    *,
    explores: bool,
    runs_max: int,
    is_quiet: bool = False,
    suppressions: tuple[Suppression, ...] = (),
    on_run: OnRun = lambda made, most: None,
) -> Verdicts:
    """One recorded run; a second with other answers if the program polls; the search if asked."""
    start_s = time.monotonic()
    outcome = device.run(program, Plan(), is_quiet=is_quiet)
    later = program
    if not program.timeout_s:
        limit_s = TIMES_MAX * (time.monotonic() - start_s) + MORE_S
        later = Program(program.argv, limit_s, program.suppressed)
    if outcome.ending is not Ending.FINISHED:
        return suppressing(Verdicts(outcome=outcome), suppressions)
    polled = None
    if QUERIES in outcome.not_seen:
        try:
            polled = device.run(later, Plan(polls=POLLS), is_quiet=True)
        except KeyboardInterrupt:
            outcome = msgspec.structs.replace(outcome, ending=Ending.INTERRUPTED)
            return suppressing(Verdicts(outcome=outcome), suppressions)
        outcome = _with_findings_of(polled, outcome)
    verdicts = suppressing(Verdicts(outcome=outcome, polled=polled), suppressions)
    if not explores or not verdicts.open_findings:
        return verdicts
    if device.kind is DeviceKind.CUDA:
        outcome = settled(device, later, outcome)
    base = msgspec.structs.replace(outcome, findings=verdicts.open_findings)
    is_polled = polled is not None and polled.ending is Ending.FINISHED
    found = search(
        device, later, base, runs_max=runs_max, polled=polled if is_polled else None, on_run=on_run
    )
    return msgspec.structs.replace(verdicts, search=found)


def settled(device: DeviceServer, program: Program, outcome: Outcome, *, polls: int = 0) -> Outcome:
    """What held runs of a real GPU are compared with: a run in which everything ran at once, with
    the findings of the recorded one.
    """
    plan = Plan(polls=polls, is_recording=False, settles=True)
    run = device.run(program, plan, is_quiet=True)
    return msgspec.structs.replace(
        outcome, ending=run.ending, exit_code=run.exit_code, observations=run.observations
    )


def suppressing(verdicts: Verdicts, suppressions: tuple[Suppression, ...]) -> Verdicts:
    """Which suppressions were needed, and, if the program came to its end, which were not."""
    signatures = {finding.signature for finding in verdicts.outcome.findings}
    used = tuple(s for s in suppressions if s.signature in signatures)
    is_whole = verdicts.outcome.ending is Ending.FINISHED
    stale = tuple(s for s in suppressions if s.signature not in signatures and is_whole)
    return msgspec.structs.replace(verdicts, suppressed=used, stale=stale)


def judge_under(
    program: Program,
    holds: tuple[str, ...],
    *,
    polls: int = 0,
    suppressions: tuple[Suppression, ...] = (),
    stdout: PrintPlace = PrintPlace.PLAIN,
    kind: DeviceKind = DeviceKind.VIRTUAL,
) -> Verdicts:
    """One run under holds, written `OPERATION until ACCESS` or `OPERATION` alone, beside a recorded
    one in which nothing is held: its findings are that one's. Raises ScheduleError.
    """
    pairs = parse_holds(holds)
    with open_device(kind, stdout=stdout) as device:
        found = under(device, program, pairs, polls=polls)
    return suppressing(found, suppressions)


def under(device: DeviceServer, program: Program, holds: Holds, *, polls: int = 0) -> Verdicts:
    """As `judge_under`, on a device that was started. polls: how often completion queries are
    answered "not ready", in all of its runs
    """
    base = device.run(program, Plan(polls=polls), is_quiet=True)
    if base.ending is not Ending.FINISHED:
        return Verdicts(outcome=base)
    if device.kind is DeviceKind.CUDA:
        base = settled(device, program, base, polls=polls)
    held = device.run(program, Plan(holds=holds, polls=polls, is_recording=False))
    changes = _changes(base, held)
    if changes:  # what another run without holds changes too is not the holds' doing
        again = device.run(program, Plan(polls=polls, is_recording=False), is_quiet=True)
        changes -= _changes(base, again)
    outcome = msgspec.structs.replace(
        held, findings=base.findings, events=base.events, not_seen=base.not_seen | held.not_seen
    )
    return Verdicts(outcome=outcome, unheld=base, changes=tuple(sorted(changes)))


def _changes(base: Outcome, held: Outcome) -> set[str]:
    """Observations that differ, and how the program ends; nothing of a run that was cut off."""
    if held.ending in UNDECIDED:
        return set()
    if (held.ending, held.exit_code) != (base.ending, base.exit_code):
        return {f"how the program ends: {held.message or held.exit_code}"}
    return changed(base.observations, held.observations)


def _with_findings_of(polled: Outcome, outcome: Outcome) -> Outcome:
    known = {finding.signature for finding in outcome.findings}
    new = tuple(finding for finding in polled.findings if finding.signature not in known)
    return msgspec.structs.replace(outcome, findings=(*outcome.findings, *new))
