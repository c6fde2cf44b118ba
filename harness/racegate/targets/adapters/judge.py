"""A foreign engine judged: one eager run, the landings of what races in it, and a verdict that says
no more than the engine lets anybody know.
"""

from __future__ import annotations

from functools import cached_property

import msgspec

from racegate.history.finding import Verdict, with_hazards
from racegate.history.outcome import RunResult
from racegate.history.run import Run
from racegate.history.schedule import EAGER, Schedule
from racegate.history.stats import Stats, make_stats, unmet_expectations
from racegate.history.trace import HostAccess, OpRecord
from racegate.history.verdict import (
    NOTHING_TRIED,
    Facts,
    Tried,
    facts_of,
    tried_by_hand,
    unrealised,
    verdict_of,
)
from racegate.interpose.outcome import Plan
from racegate.oracles.findings import from_conflicts
from racegate.oracles.ordering import has_unordered_query
from racegate.scenario.spec import OwnScenario, settings_of
from racegate.targets.adapters.client import Adapter
from racegate.targets.adapters.errors import EngineLostError
from racegate.targets.adapters.landings import Points, points_of
from racegate.targets.adapters.target import AdaptedTarget, AdapterOutcome, PlainTokens
from racegate.targets.adapters.wire import (
    HelloAnswer,
    Offer,
    Plant,
    RefusedAnswer,
    plant_text,
)
from racegate.targets.common.landings import number_of
from racegate.targets.common.search import search

LANDINGS_MAX = 64

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

    def judge(self, *, plant: Plant | None = None) -> RunResult:
        """The eager run, and landings if it has conflicts and nothing is wrong yet."""
        target = self._target(plant)
        if missing := self._cannot_express() or target.eager.refused:
            return self._refused(missing, plant)
        eager = target.eager
        points = points_of(eager.conflicts, self._hello)
        if eager.wrong or not eager.conflicts or eager.history.stopped is not None:
            return self._judged(eager, EAGER, eager, plant, points=points)
        found = search(target, eager, points, runs_max=self._landings_max)
        shown, schedule = eager, EAGER
        if found.harms:
            shown, schedule = found.harms[0].what, Schedule(holds=found.harms[0].holds)
        return self._judged(
            shown, schedule, eager, plant, points=points, missing=found.limits, tried=found.tried
        )

    def under(self, schedule: Schedule, *, plant: Plant | None = None) -> RunResult:
        """One run under given holds, compared with the eager one."""
        target = self._target(plant)
        if missing := self._cannot_express() or target.eager.refused:
            return self._refused(missing, plant)
        held = target.run(Plan(holds=schedule.holds))
        if held.refused:
            return self._refused(held.refused, plant)
        tried = tried_by_hand(held.history.trace.holds if held.history.stopped is None else ())
        return self._judged(held, schedule, held, plant, tried=tried)

    def _target(self, plant: Plant | None) -> AdaptedTarget:
        return AdaptedTarget(
            self._adapter,
            self._scenario,
            device=self._device,
            plant=plant,
            plain=lambda: self._plain,
        )

    def _cannot_express(self) -> str:
        kinds = {str(event.__struct_config__.tag) for event in self._scenario.events}
        lacking = sorted(kinds - set(self._hello.events))
        return f"it cannot make happen: {', '.join(lacking)}" if lacking else ""

    @cached_property
    def _plain(self) -> PlainTokens | None:
        """The tokens of plain decoding; None if the engine does not do it for this scenario."""
        if Offer.PLAIN not in self._hello.offers:
            return None
        answer = self._adapter.plain(self._scenario)
        return None if isinstance(answer, RefusedAnswer) else answer

    def _judged(
        self,
        shown: AdapterOutcome,
        schedule: Schedule,
        raced: AdapterOutcome,
        plant: Plant | None,
        *,
        points: Points | None = None,
        missing: tuple[str, ...] = (),
        tried: Tried = NOTHING_TRIED,
    ) -> RunResult:
        """raced: the run whose conflicts count; missing: what was not tried of its landings"""
        run, conflicts, wrong = shown.history, raced.conflicts, list(shown.wrong)
        findings = from_conflicts(conflicts, run) + wrong
        stats = make_stats(run, conflicts=len(conflicts))
        unmet = self._unmet(run, stats, plant)
        not_seen = self._not_seen()
        if tried.number and not wrong:
            not_seen += (_TORN,)
        if conflicts and not wrong:
            not_seen += missing or (() if points is None else points.missing)
        is_compared = Offer.OBSERVATIONS in self._hello.offers
        facts = facts_of(findings, unmet, tried, is_compared=is_compared)
        command = self._command.text(schedule, plant)
        if points is not None:
            tried = msgspec.structs.replace(tried, known=number_of(points.points))
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
