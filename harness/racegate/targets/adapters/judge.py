"""A foreign engine judged: one eager run, the landings of what races in it, and a verdict that says
no more than the engine lets anybody know.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from racegate.history.finding import Finding, FindingKind, Verdict, with_hazards
from racegate.history.outcome import RunResult
from racegate.history.run import EngineResult, Run
from racegate.history.schedule import EAGER, Holds, Schedule
from racegate.history.stats import Stats, make_stats, unmet_expectations
from racegate.history.trace import HostAccess, OpRecord
from racegate.history.verdict import (
    NOTHING_TRIED,
    Facts,
    Reach,
    Tried,
    facts_of,
    tried_by_hand,
    unrealised,
    verdict_of,
)
from racegate.oracles.findings import from_conflicts, from_losses, from_misowned, signature
from racegate.oracles.losslessness import find_losses
from racegate.oracles.ordering import Conflict, find_conflicts, has_unordered_query
from racegate.oracles.ownership import find_misowned
from racegate.scenario.spec import OwnScenario, settings_of
from racegate.targets.adapters.answers import wrong_ends
from racegate.targets.adapters.client import Adapter, AdapterRun, EngineStoppedError
from racegate.targets.adapters.errors import AdapterError, EngineLostError, LossKind
from racegate.targets.adapters.landings import Landings, first_change, landings_of
from racegate.targets.adapters.wire import (
    HelloAnswer,
    Offer,
    Plant,
    RefusedAnswer,
    StopKind,
    plant_text,
)
from racegate.targets.common.landings import LandingRun, LandingRuns, combined, number_of

LANDINGS_MAX = 64
_Wrong = tuple[Run, list[Finding]] | None  # a run in which something is wrong, and what

# What nobody sees who lacks an offer.
_UNSEEN = {
    Offer.PLAIN: "whether the delivered tokens are right: the engine offers no plain decoding",
    Offer.OBSERVATIONS: "what is true inside a step: the engine observes nothing, so that landings "
    "are compared by their delivered tokens alone",
    Offer.HOLDS: "whether a missing order does harm: the engine cannot hold operations back",
    Offer.OWNERS: "whose value a row has: the engine tells no owners, so that a value that was "
    "waited for and belongs to another request passes",
}
_TORN = "copies that land in parts: every landing that was tried is of whole operations"


class AdapterCommand(msgspec.Struct, frozen=True, kw_only=True):
    """How a result is shown again. before: up to its options; after: the engine's own"""

    before: str = "racegate adapter run"
    after: str = ""

    def text(self, schedule: Schedule, plant: Plant | None) -> str:
        """The command with holds and plant."""
        parts = [self.before]
        if plant is not None:
            parts.append(f"--plant {plant_text(plant)}")
        parts += [f'--hold "{text}"' for text in schedule.texts()]
        return " ".join([*parts, *([self.after] if self.after else [])])


class AdapterJudge:
    """One scenario on one foreign engine. landings_max: schedules besides the eager one

    Raises AdapterError if what the engine says cannot be believed.
    """

    def __init__(
        self,
        adapter: Adapter,
        scenario: OwnScenario,
        *,
        device: str | None = None,
        landings_max: int = LANDINGS_MAX,
        command: AdapterCommand | None = None,
    ) -> None:
        self._adapter = adapter
        self._hello = adapter.hello
        self._scenario = scenario
        self._device = device or self._hello.devices[0]
        self._landings_max = landings_max
        self._command = AdapterCommand() if command is None else command
        self._plain: dict[str, tuple[int, ...]] | None = None

    def judge(self, *, plant: Plant | None = None) -> RunResult:
        """The eager run, and landings if it has conflicts and nothing is wrong yet."""
        if missing := self._cannot_express():
            return self._refused(missing, plant)
        eager = self._told(EAGER, plant)
        if isinstance(eager, RefusedAnswer):
            return self._refused(eager.reason, plant)
        conflicts = find_conflicts(eager.run.trace)
        landings = landings_of(conflicts, self._hello)
        wrong = self._wrong(eager.run)
        if wrong or not conflicts or eager.run.stopped is not None:
            return self._judged(eager.run, EAGER, conflicts, wrong, plant, landings=landings)
        return self._search(eager.run, conflicts, landings, plant)

    def under(self, schedule: Schedule, *, plant: Plant | None = None) -> RunResult:
        """One run under given holds, compared with the eager one."""
        if missing := self._cannot_express():
            return self._refused(missing, plant)
        eager, held = self._told(EAGER, plant), self._told(schedule, plant)
        for told in (eager, held):
            if isinstance(told, RefusedAnswer):
                return self._refused(told.reason, plant)
        assert isinstance(eager, AdapterRun) and isinstance(held, AdapterRun)
        wrong = self._wrong(held.run) or self._changed(eager.run, held.run, schedule, plant)
        conflicts = find_conflicts(held.run.trace)
        tried = tried_by_hand(held.run.trace.holds if held.run.stopped is None else ())
        return self._judged(held.run, schedule, conflicts, wrong, plant, tried=tried)

    def _search(
        self, eager: Run, conflicts: Sequence[Conflict], landings: Landings, plant: Plant | None
    ) -> RunResult:
        """All landings, few holds first, until one goes wrong."""
        known = {_pair(found) for found in conflicts}

        def make(holds: Holds, polls: int) -> LandingRun[_Wrong]:
            return self._attempt(holds, eager, known, plant)

        attempts = LandingRuns(make, runs_max=self._landings_max)
        harmful = attempts.first_harm(combined(landings.points))
        number = number_of(landings.points)
        missing = [*landings.missing, *(text for one in attempts.held for text in one.missing)]
        if harmful is not None and harmful.what is not None:
            (run, wrong), schedule = harmful.what, Schedule(holds=harmful.holds)
            tried = attempts.tried(Reach.SOME, known=number)
            return self._judged(
                run, schedule, conflicts, wrong, plant, landings=landings, tried=tried
            )
        if len(attempts.made) < number:
            missing.append(f"{len(attempts.made)} of {number} landings were tried")
        tried = attempts.tried(Reach.SOME if missing else Reach.COMBINATIONS, known=number)
        landings = msgspec.structs.replace(landings, missing=tuple(dict.fromkeys(missing)))
        return self._judged(eager, EAGER, conflicts, [], plant, landings=landings, tried=tried)

    def _attempt(
        self, holds: Holds, eager: Run, known: set[tuple[str, str, str]], plant: Plant | None
    ) -> LandingRun[_Wrong]:
        """One run under holds. known: conflicts of the eager run"""
        schedule = Schedule(holds=holds)
        text = " and ".join(schedule.texts())
        held = self._told(schedule, plant)
        if isinstance(held, RefusedAnswer):
            return LandingRun(
                holds=holds,
                what=None,
                is_decided=False,
                is_realised=False,
                is_harmful=False,
                missing=(f"{text}: {held.reason}",),
            )
        run = held.run
        wrong = self._wrong(run) or self._changed(eager, run, schedule, plant)
        missing = [] if run.stopped is None else [f"{text}: {run.stopped}"]
        missing += unrealised(run.trace.holds)
        if not {_pair(found) for found in find_conflicts(run.trace)} <= known:
            missing.append(f"{text} brings conflicts of its own")
        return LandingRun(
            holds=holds,
            what=(run, wrong) if wrong else None,  # the trace of a run is large
            is_decided=run.stopped is None,
            is_realised=bool(tried_by_hand(run.trace.holds).number),
            is_harmful=bool(wrong),
            missing=tuple(missing),
        )

    def _told(self, schedule: Schedule, plant: Plant | None) -> AdapterRun | RefusedAnswer:
        return self._adapter.run(
            self._scenario, schedule=schedule, plant=plant, device=self._device
        )

    def _cannot_express(self) -> str:
        kinds = {str(event.__struct_config__.tag) for event in self._scenario.events}
        lacking = sorted(kinds - set(self._hello.events))
        return f"it cannot make happen: {', '.join(lacking)}" if lacking else ""

    def _wrong(self, run: Run) -> list[Finding]:
        """What is wrong in a run by itself, whatever the order: causes before effects."""
        findings = from_misowned(find_misowned(run.trace))
        if run.result is not None:
            findings += self._losses(run.result) or wrong_ends(self._scenario, run.result)
        return findings + _from_stop(run.stopped)

    def _losses(self, result: EngineResult) -> list[Finding]:
        """What plain decoding says against the delivered tokens, if it is offered."""
        plain = self._plainly_decoded() if Offer.PLAIN in self._hello.offers else None
        if plain is None:
            return []
        return from_losses(find_losses(result.delivered, plain, result.finished))

    def _changed(
        self, eager: Run, held: Run, schedule: Schedule, plant: Plant | None
    ) -> list[Finding]:
        """What a landing changes, if it is the landing that does: eager runs have to be equal."""
        found = first_change(eager, held, schedule)
        if found:
            again = self._told(EAGER, plant)
            same = isinstance(again, AdapterRun) and not first_change(eager, again.run, EAGER)
            if not same:
                raise AdapterError(
                    f"{self._hello.engine}: two eager runs of {self._scenario.name} differ, so "
                    "that nothing can be said of a schedule: seed what is random"
                )
        return found

    def _plainly_decoded(self) -> dict[str, tuple[int, ...]] | None:
        """None if the engine does not do it for this scenario."""
        if self._plain is None:
            answer = self._adapter.plain(self._scenario)
            if isinstance(answer, RefusedAnswer):
                return None
            self._plain = answer
        return self._plain

    def _judged(
        self,
        run: Run,
        schedule: Schedule,
        conflicts: Sequence[Conflict],
        wrong: list[Finding],
        plant: Plant | None,
        *,
        landings: Landings | None = None,
        tried: Tried = NOTHING_TRIED,
    ) -> RunResult:
        missing = () if landings is None else landings.missing
        findings = from_conflicts(conflicts, run) + wrong
        stats = make_stats(run, conflicts=len(conflicts))
        unmet = self._unmet(run, stats, plant)
        not_seen = self._not_seen()
        if tried.number and not wrong:
            not_seen += (_TORN,)
        if conflicts and not wrong:
            not_seen += missing
        is_compared = Offer.OBSERVATIONS in self._hello.offers
        facts = facts_of(findings, unmet, tried, is_compared=is_compared)
        command = self._command.text(schedule, plant)
        if landings is not None:
            tried = msgspec.structs.replace(tried, known=number_of(landings.points))
        return msgspec.structs.replace(
            self._result(schedule, plant, verdict_of(facts), unmet),
            stats=msgspec.structs.replace(stats, schedules=1 + tried.number),
            findings=with_hazards(
                tuple(msgspec.structs.replace(f, replay=command) for f in findings)
            ),
            holds=run.trace.holds,
            warnings=_idle_events(run),
            tried=tried,
            not_seen=tuple(text for text in dict.fromkeys(not_seen) if text not in unmet),
        )

    def _unmet(self, run: Run, stats: Stats, plant: Plant | None) -> tuple[str, ...]:
        if isinstance(run.stopped, EngineLostError):
            return (str(run.stopped),)
        if run.result is None:
            return ()
        unmet = () if plant is not None else unmet_expectations(self._scenario, stats)
        if has_unordered_query(run.trace):
            unmet += ("the host asks whether something is complete: the other answer was not run",)
        if self._plain is None:
            unmet += (_UNSEEN[Offer.PLAIN],)
        return (*unmet, *_vacuous(run), *unrealised(run.trace.holds))

    def _not_seen(self) -> tuple[str, ...]:
        unseen = (text for offer, text in _UNSEEN.items() if offer not in self._hello.offers)
        return (*unseen, *self._ignored_settings(), *self._hello.not_seen)

    def _ignored_settings(self) -> tuple[str, ...]:
        """What the script sets of racegate's own engine, which the engine does not obey."""
        names = ", ".join(settings_of(self._scenario))
        if not names or Offer.SETTINGS in self._hello.offers:
            return ()
        return (f"what the script sets of racegate's own engine: {names}; the engine obeys none",)

    def _refused(self, reason: str, plant: Plant | None) -> RunResult:
        unmet = (f"the engine does not run this: {reason}",)
        result = self._result(EAGER, plant, verdict_of(Facts(unmet=unmet)), unmet)
        return msgspec.structs.replace(result, refused=reason)

    def _result(
        self, schedule: Schedule, plant: Plant | None, verdict: Verdict, unmet: tuple[str, ...]
    ) -> RunResult:
        return RunResult(
            scenario=self._scenario.name,
            target=f"{self._hello.engine} {self._hello.version}",
            device=self._device,
            config={"engine": _config(self._hello)},
            fault=None if plant is None else plant_text(plant),
            schedule=schedule.texts(),
            verdict=verdict,
            findings=(),
            stats=Stats(),
            holds=(),
            unmet=unmet,
            warnings=(),
            not_seen=self._not_seen(),
        )


def _config(hello: HelloAnswer) -> dict[str, object]:
    return {"name": hello.engine, "version": hello.version, "offers": sorted(hello.offers)}


def _from_stop(error: Exception | None) -> list[Finding]:
    """A stop by itself is a defect; one that a limit of ours brought about is none that we know."""
    if isinstance(error, EngineStoppedError):
        answer = error.answer
        is_deadlock = answer.kind is StopKind.DEADLOCK
        kind = FindingKind.DEADLOCK if is_deadlock else FindingKind.CRASH
        return [_stop(kind, answer.error, f"the engine stopped: {error}")]
    if isinstance(error, EngineLostError) and error.kind is LossKind.EXITED:
        return [_stop(FindingKind.CRASH, "exited", str(error))]
    return []


def _stop(kind: FindingKind, what: str, message: str) -> Finding:
    return Finding(kind=kind, signature=signature(str(kind), what), message=message, actual=message)


def _vacuous(run: Run) -> tuple[str, ...]:
    """Why a run shows too little to be a pass, if it does."""
    assert run.result is not None
    lanes: dict[int, set[int]] = {}
    for event in run.trace.events:
        if isinstance(event, OpRecord | HostAccess):
            for access in event.accesses:
                lanes.setdefault(access.storage, set()).add(event.lane)
    ends = run.result.finished.items()
    reasons = [f"request {name} did not finish" for name, end in ends if end == "unfinished"]
    if all(len(found) < 2 for found in lanes.values()):
        reasons.append("no memory is touched by two lanes: nothing could race")
    if not any(run.result.delivered.values()):
        reasons.append("no token was delivered")
    return tuple(reasons)


def _idle_events(run: Run) -> tuple[str, ...]:
    events = () if run.result is None else run.result.unmet_events
    return tuple(f"event had no effect: {event}" for event in events)


def _pair(found: Conflict) -> tuple[str, str, str]:
    return found.buffer, found.first.name, found.second.name
