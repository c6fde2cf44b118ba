"""What is run to judge a program, and what all of it says together."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import msgspec

from racegate.history.exit_code import code_of_signal
from racegate.history.finding import Benign, FindingKind, Race, exit_code
from racegate.history.schedule import Holds
from racegate.history.verdict import NOTHING_TRIED, Facts, unrealised_text
from racegate.interpose.device.touches import QUERIES
from racegate.interpose.errors import INTERRUPTED, ExitCode
from racegate.interpose.outcome import DeviceKind, Ending, Outcome, Plan, changed
from racegate.interpose.ranks.group.findings import RankFinding
from racegate.scenario.strict import StrictStruct
from racegate.targets.common.landings import OnRun
from racegate.targets.common.search import POLLS, Effect, JudgedRace, LandingSearch, search
from racegate.targets.common.verdict import TargetVerdict, counted
from racegate.targets.program.explore import Pairs
from racegate.targets.program.launch import DeviceServer, Program
from racegate.targets.program.ranks import LOST

# A run under holds may take as long as the recorded run so many times, and this much more.
TIMES_MAX, MORE_S = 20, 30.0
NO_WORK = "the program gave the device no work: no operation, no memory, no access of pinned memory"
CHILDREN_WORK = "operations and memory of processes that the program forked, which nobody judges"
_WRONG = {FindingKind.MISMATCH, FindingKind.DIVERGENCE}
# Why a run that did not finish would be no proof.
_ENDED = {
    Ending.FAILED: "failed by itself",
    Ending.NOT_MODELLED: "asked for something that is not modelled",
    Ending.LOST: "was gone before its script was over",
    Ending.TIMED_OUT: "took longer than it had",
    Ending.INTERRUPTED: "was stopped",
    Ending.STUCK: "came to where none of its ranks can go on",
}


class Suppression(StrictStruct, frozen=True, kw_only=True):
    """A finding that somebody looked at and lets stand. signature: the finding's; reason: why"""

    signature: str
    reason: str


@dataclass(frozen=True, slots=True)
class ProgramTarget:
    """A program on a started device. What it prints is not shown."""

    device: DeviceServer
    program: Program

    def run(self, plan: Plan) -> Outcome:
        """One run under a plan."""
        return self.device.run(self.program, plan, is_quiet=True)


ProgramRace = JudgedRace[Outcome]
ProgramSearch = LandingSearch[Outcome]


class ProgramVerdict(TargetVerdict[Outcome], frozen=True, kw_only=True):
    """What all runs of a program say together. shown: has the findings of all

    polled: a second recorded run, in which queries were first answered "not ready", if there are
        any
    suppressed: findings that are let stand; stale: suppressions that matched nothing
    benign: what a finding is of which every landing was tried without harm
    changes: what holds that somebody named change: names of observations, or how the program ends
    """

    polled: Outcome | None = None
    suppressed: tuple[Suppression, ...] = ()
    stale: tuple[Suppression, ...] = ()
    benign: Benign = Benign.PASS
    changes: tuple[str, ...] = ()

    @property
    def races(self) -> tuple[Race, ...]:
        """Of all recorded runs."""
        return self.shown.findings

    @property
    def is_finished(self) -> bool:
        """Whether the program came to its end."""
        return self.shown.ending is Ending.FINISHED

    @property
    def is_interrupted(self) -> bool:
        """Whether the user stopped a run."""
        is_stopped = self.shown.ending is Ending.INTERRUPTED
        return is_stopped or (self.search is not None and self.search.is_interrupted)

    @property
    def polls_matter(self) -> tuple[str, ...]:
        """Observations that differ with the answers to completion queries, or how it ended."""
        polled = self.polled
        if polled is None or not polled.is_decided:
            return ()
        if polled.ending is not Ending.FINISHED:
            return (f"how the program ends: {polled.message or polled.exit_code}",)
        return tuple(sorted(changed(self.shown.observations, polled.observations)))

    @property
    def open_findings(self) -> tuple[Race, ...]:
        """Conflicts that are neither suppressed nor pass because they are known to be benign."""
        done = set()
        if self.benign is Benign.PASS:
            done = {one.race.signature for one in self.judged if one.effect is Effect.BENIGN}
        return tuple(race for race in self.standing if race.signature not in done)

    @property
    def standing(self) -> tuple[Race, ...]:
        """Conflicts that nobody lets stand."""
        done = {suppression.signature for suppression in self.suppressed}
        return tuple(race for race in self.races if race.signature not in done)

    @property
    def disagreements(self) -> tuple[RankFinding, ...]:
        """What ranks do wrong together and nobody lets stand."""
        done = {suppression.signature for suppression in self.suppressed}
        return tuple(one for one in self.shown.disagreements if one.signature not in done)

    @property
    def facts(self) -> Facts:
        """Those of any target, and what ranks do wrong together. No landing says anything about
        orders of communicators, so with one of these nothing was tried.
        """
        kinds = [one.kind for one in self.disagreements]
        facts, orders = super().facts, kinds.count(FindingKind.ORDER)
        return msgspec.structs.replace(
            facts,
            is_deadlocked=FindingKind.DEADLOCK in kinds,
            is_wrong=facts.is_wrong or bool({*kinds} & _WRONG),
            conflicts=facts.conflicts + orders,
            tried=NOTHING_TRIED if orders else facts.tried,
        )

    @property
    def is_changed(self) -> bool:
        """Whether holds, or other answers to completion queries, change what is observed."""
        is_harmed = self.search is not None and bool(self.search.harms)
        return bool(self.changes or self.polls_matter) or is_harmed

    @property
    def exit_code(self) -> int:
        """0 no conflict, 1 a finding, 2 bad input, 3 not modelled, 4 no work for the device, or a
        hold that kept nothing back, 7 a script that failed by itself without a conflict, whatever
        its own code; 130 stopped by the user, or 128 and the number of another signal.
        """
        shown = self.shown
        if self.is_interrupted:
            return INTERRUPTED
        if shown.ending is Ending.NOT_MODELLED:
            return ExitCode.NOT_MODELLED
        if self.changes or self.disagreements:
            return ExitCode.FINDING
        if shown.ending is Ending.TIMED_OUT:
            return shown.exit_code
        if shown.ending is not Ending.FINISHED and not self.standing:
            code = shown.exit_code
            return code_of_signal(-code) if code < 0 else ExitCode.SCRIPT_FAILED
        code = exit_code([self.verdict], benign=self.benign)
        return ExitCode.BAD_INPUT if self.stale and code is ExitCode.CLEAN else code


def judge_on(
    device: DeviceServer,
    program: Program,
    *,
    explores: bool,
    runs_max: int,
    is_quiet: bool = False,
    suppressions: tuple[Suppression, ...] = (),
    on_run: OnRun | None = None,
) -> ProgramVerdict:
    """One recorded run; a second with other answers if the program polls; the search if asked."""
    start_s = time.monotonic()
    base = device.run(program, Plan(), is_quiet=is_quiet)
    if not program.timeout_s:
        limit_s = TIMES_MAX * (time.monotonic() - start_s) + MORE_S
        program = replace(program, timeout_s=limit_s)
    target, polled = ProgramTarget(device, program), None
    if base.ending is Ending.FINISHED and QUERIES in base.not_seen:
        try:
            polled = target.run(Plan(polls=POLLS))
        except KeyboardInterrupt:
            base = msgspec.structs.replace(base, ending=Ending.INTERRUPTED)
        else:
            base = _with_findings_of(polled, base)
    verdict = suppressing(_verdict(base, base, polled=polled), suppressions)
    if not (explores and verdict.is_finished and verdict.open_findings):
        return verdict
    if device.kind is DeviceKind.CUDA:
        base = settled(target, base)
    found = search(
        target,
        msgspec.structs.replace(base, findings=verdict.open_findings),
        Pairs(device.kind),
        runs_max=runs_max,
        polled=polled if polled is not None and polled.ending is Ending.FINISHED else None,
        on_run=on_run,
        ended_by=(KeyboardInterrupt,),
    )
    return msgspec.structs.replace(verdict, search=found)


def settled(target: ProgramTarget, outcome: Outcome, *, polls: int = 0) -> Outcome:
    """What held runs of a real GPU are compared with: a run in which everything ran at once, with
    the findings of the recorded one.
    """
    run = target.run(Plan(polls=polls, is_recording=False, settles=True))
    return msgspec.structs.replace(
        outcome, ending=run.ending, exit_code=run.exit_code, observations=run.observations
    )


def suppressing(verdict: ProgramVerdict, suppressions: tuple[Suppression, ...]) -> ProgramVerdict:
    """Which suppressions were needed, and, if the program came to its end, which were not."""
    signatures = {race.signature for race in verdict.races}
    signatures |= {one.signature for one in verdict.shown.disagreements}
    used = tuple(one for one in suppressions if one.signature in signatures)
    stale = tuple(one for one in suppressions if one not in used and verdict.is_finished)
    return msgspec.structs.replace(verdict, suppressed=used, stale=stale)


def under(
    device: DeviceServer, program: Program, holds: Holds, *, polls: int = 0
) -> ProgramVerdict:
    """One run under holds beside a recorded one in which nothing is held: its findings are that
    one's. polls: how often completion queries are answered "not ready", in all runs
    """
    target = ProgramTarget(device, program)
    base = target.run(Plan(polls=polls))
    if base.ending is not Ending.FINISHED:
        return _verdict(base, base)
    if device.kind is DeviceKind.CUDA:
        base = settled(target, base, polls=polls)
    held = device.run(program, Plan(holds=holds, polls=polls, is_recording=False))
    changes = _changes(base, held)
    if changes:  # what another run without holds changes too is not the holds' doing
        changes -= _changes(base, target.run(Plan(polls=polls, is_recording=False)))
    shown = msgspec.structs.replace(
        held, findings=base.findings, events=base.events, not_seen=base.not_seen | held.not_seen
    )
    found = _verdict(base, shown)
    return msgspec.structs.replace(found, holds=holds, changes=tuple(sorted(changes)))


def _verdict(base: Outcome, shown: Outcome, *, polled: Outcome | None = None) -> ProgramVerdict:
    unrealised = (hold for hold, count in shown.realised.items() if not count)
    cut = () if shown.ending is Ending.FINISHED else (f"the program {_ENDED[shown.ending]}",)
    return ProgramVerdict(
        base=base,
        shown=shown,
        polled=polled,
        unmet=(*cut, *unjudged(shown), *map(unrealised_text, unrealised)),
        not_seen=counted(shown),
    )


def unjudged(outcome: Outcome) -> tuple[str, ...]:
    """Why a run that came to its end says nothing of the program, or not of all of it."""
    if outcome.ending is not Ending.FINISHED:
        return ()
    reasons = [NO_WORK] if outcome.work == 0 else []
    if outcome.work_of_children:
        reasons.append(f"{CHILDREN_WORK}: {outcome.work_of_children}")
    if lost := outcome.not_seen.get(LOST):
        reasons.append(f"{LOST}: {lost}")
    return tuple(reasons)


def _changes(base: Outcome, held: Outcome) -> set[str]:
    """Observations that differ, and how the program ends; nothing of a run that was cut off."""
    if not held.is_decided:
        return set()
    if (held.ending, held.exit_code) != (base.ending, base.exit_code):
        return {f"how the program ends: {held.message or held.exit_code}"}
    return changed(base.observations, held.observations)


def _with_findings_of(polled: Outcome, outcome: Outcome) -> Outcome:
    known = {race.signature for race in outcome.findings}
    new = tuple(race for race in polled.findings if race.signature not in known)
    return msgspec.structs.replace(outcome, findings=(*outcome.findings, *new))
