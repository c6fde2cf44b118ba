"""A foreign engine judged: one eager run, the landings of what races in it, and a verdict that says
no more than the engine lets anybody know.
"""

from __future__ import annotations

from functools import cached_property
from shlex import join, quote
from typing import NamedTuple

import msgspec

from racegate.history.finding import Finding
from racegate.history.outcome import RunResult
from racegate.history.run import Run
from racegate.history.schedule import Holds, Schedule
from racegate.history.stats import Stats, make_stats, unmet_expectations
from racegate.history.trace import HostAccess, OpRecord
from racegate.history.verdict import Facts, facts_of, unrealised
from racegate.interpose.outcome import Plan
from racegate.oracles.findings import from_conflicts
from racegate.oracles.ordering import has_unordered_query
from racegate.scenario.spec import OwnScenario, settings_of
from racegate.targets.adapters.client import Adapter
from racegate.targets.adapters.errors import EngineLostError
from racegate.targets.adapters.landings import points_of
from racegate.targets.adapters.target import NOTHING, AdaptedTarget, AdapterOutcome, PlainTokens
from racegate.targets.adapters.wire import (
    HelloAnswer,
    Offer,
    Plant,
    RefusedAnswer,
    plant_text,
)
from racegate.targets.common.search import LandingSearch, search
from racegate.targets.common.verdict import TargetVerdict, result_from, tried_under

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
    """How a result is shown again. scenario: its file; command: what starts the adapter"""

    scenario: str = ""
    command: tuple[str, ...] = ()

    def text(self, schedule: Schedule, plant: Plant | None) -> str:
        """The command with holds and plant."""
        parts = ["racegate adapter run", *([quote(self.scenario)] if self.scenario else [])]
        if plant is not None:
            parts.append(f"--plant {plant_text(plant)}")
        parts += [f'--hold "{text}"' for text in schedule.texts()]
        return " ".join([*parts, *([f"-- {join(self.command)}"] if self.command else [])])


class AdapterVerdict(TargetVerdict[AdapterOutcome], frozen=True, kw_only=True):
    """What is said of one scenario on an engine behind an adapter.

    findings: what races in the run whose conflicts count, and what is wrong in the one shown
    is_compared: the engine observes something that runs are compared by
    """

    findings: tuple[Finding, ...] = ()
    is_compared: bool

    @property
    def facts(self) -> Facts:
        return facts_of(self.findings, self.unmet, self.tried, is_compared=self.is_compared)

    @property
    def is_lost(self) -> bool:
        """Never: an engine that is gone is started again for the next run, and `unmet` says so."""
        return False


class AdapterLook(NamedTuple):
    """What came of one scenario. base: the eager run; shown: the one that is told of, under the
    holds of the result if it has any
    """

    result: RunResult
    base: AdapterOutcome
    shown: AdapterOutcome


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
        return self.look(plant=plant).result

    def look(self, *, plant: Plant | None = None) -> AdapterLook:
        """The same, with the runs that it is of."""
        target = self._target(plant)
        if missing := self._cannot_express() or target.eager.refused:
            return self._refused(missing, plant)
        eager = target.eager
        if eager.wrong or not eager.conflicts or eager.history.stopped is not None:
            return self._judged(eager, eager, plant)
        points = points_of(eager.conflicts, self._hello)
        found = search(target, eager, points, runs_max=self._landings_max)
        if not found.harms:
            return self._judged(eager, eager, plant, search=found)
        harm = found.harms[0]
        return self._judged(eager, harm.what, plant, holds=harm.holds, search=found)

    def under(self, schedule: Schedule, *, plant: Plant | None = None) -> RunResult:
        """One run under given holds, compared with the eager one."""
        target = self._target(plant)
        if missing := self._cannot_express() or target.eager.refused:
            return self._refused(missing, plant).result
        held = target.run(Plan(holds=schedule.holds))
        if held.refused:
            return self._refused(held.refused, plant).result
        return self._judged(held, held, plant, holds=schedule.holds).result

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
        raced: AdapterOutcome,
        shown: AdapterOutcome,
        plant: Plant | None,
        *,
        holds: Holds = (),
        search: LandingSearch[AdapterOutcome] | None = None,
    ) -> AdapterLook:
        """raced: the run whose conflicts count; holds: those of the run that is shown"""
        run, command = shown.history, self._command.text(Schedule(holds=holds), plant)
        stats = make_stats(run, conflicts=len(raced.conflicts))
        unmet = self._unmet(run, stats, plant)
        not_seen = self._not_seen()
        if not shown.wrong:
            tried = tried_under(holds, shown) if search is None else search.tried
            not_seen += (_TORN,) * bool(tried.number)
            not_seen += () if search is None else search.limits
        found = (*from_conflicts(raced.conflicts, run), *shown.wrong)
        judged = AdapterVerdict(
            base=raced,
            shown=shown,
            search=search,
            holds=holds,
            unmet=unmet,
            not_seen=tuple(text for text in dict.fromkeys(not_seen) if text not in unmet),
            findings=tuple(msgspec.structs.replace(one, replay=command) for one in found),
            is_compared=Offer.OBSERVATIONS in self._hello.offers,
        )
        stats = msgspec.structs.replace(stats, schedules=judged.schedules)
        result = self._result(judged, plant, stats=stats, warnings=_idle_events(run))
        return AdapterLook(result, raced, shown)

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

    def _refused(self, reason: str, plant: Plant | None) -> AdapterLook:
        judged = AdapterVerdict(
            base=NOTHING,
            shown=NOTHING,
            unmet=(f"the engine does not run this: {reason}",),
            not_seen=self._not_seen(),
            refused=reason,
            is_compared=False,
        )
        return AdapterLook(self._result(judged, plant), NOTHING, NOTHING)

    def _result(self, judged: AdapterVerdict, plant: Plant | None, **more: object) -> RunResult:
        return result_from(
            judged,
            RunResult,
            judged.findings,
            device=self._device,
            scenario=self._scenario.name,
            target=f"{self._hello.engine} {self._hello.version}",
            config={"engine": _config(self._hello)},
            fault=None if plant is None else plant_text(plant),
            **more,
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
