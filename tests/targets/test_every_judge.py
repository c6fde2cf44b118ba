"""Whatever the facts are, every judge says what the table of verdicts has for them.

The table is written here once more, as a chain of questions, so that a judge and the rule cannot be
wrong together.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from racegate.check.checker import Checker
from racegate.faults.catalogue import find_fault
from racegate.history.finding import ALL_ORACLES, FindingKind, Hazard, Oracle, Race, Side, Verdict
from racegate.history.observe import Boundary
from racegate.history.observe import Observation as Seen
from racegate.history.run import EngineResult, Run
from racegate.history.schedule import Hold, Schedule, parse_schedule, texts_of
from racegate.history.trace import Access, HoldOutcome, HostAccess, OpRecord, Trace
from racegate.interpose.outcome import DeviceKind, Ending, Observation, Outcome, Plan
from racegate.scenario.expect import Expect
from racegate.scenario.files import load
from racegate.scenario.spec import OwnScenario, Request, Scenario
from racegate.targets.adapters.client import AdapterRun
from racegate.targets.adapters.judge import AdapterJudge
from racegate.targets.adapters.wire import HelloAnswer, Offer, Plant
from racegate.targets.common.judge import judge, judge_under
from racegate.targets.common.search import VERDICTS, search
from racegate.targets.common.sensitivity import Pulse
from racegate.targets.common.wire import Observed, ReleaseRun, Wrong
from racegate.targets.program.explore import Pairs
from racegate.targets.program.judge import ProgramTarget
from racegate.targets.program.launch import Program
from racegate.targets.vllm.cell import Cell
from racegate.targets.vllm.wire import ModelRunner, StateMode

SCRIPT = Path(__file__).parents[2] / "scenarios" / "finish_and_condense.toml"
CELL = Cell(release="1.0", runner=ModelRunner.V1, mode=StateMode.NONE)
REQUEST = Request(name="A", arrive=0, prompt=(1,), max_tokens=1)
TOKENS = {"A": (5,)}
YES = st.booleans()


def table(
    *,
    is_wrong: bool = False,
    conflicts: int,
    is_whole: bool,
    is_compared: bool = True,
    is_met: bool,
) -> Verdict:
    """What docs/verdicts.md says, without the lines of a broken harness and of a deadlock."""
    if is_wrong:
        return Verdict.DIVERGENT
    if not conflicts:
        return Verdict.PROVED if is_met else Verdict.INCONCLUSIVE
    if not is_whole or not is_compared:
        return Verdict.CONFLICT
    return Verdict.BENIGN if is_met else Verdict.INCONCLUSIVE


HOLDS = {
    "none": (),
    "harmless": ("d2h:accepted_counts@1 until host:condense@2",),
    "harmful": ("d2h:accepted_counts@3 until host:condense@4",),
    "nameless": ("d2h:nobody@1 until forced",),
}


@settings(max_examples=25, deadline=None)
@given(
    fault=st.sampled_from([None, "accepted-copy-after-row-move"]),
    held=st.sampled_from(sorted(HOLDS)),
    left_out=st.sampled_from([None, *Oracle]),
    steps_max=st.sampled_from([5, 200]),
)
def test_our_own_engine_under_holds(
    fault: str | None, held: str, left_out: Oracle | None, steps_max: int
) -> None:
    scenario = msgspec.structs.replace(load(SCRIPT), steps_max=steps_max)
    checker = Checker(scenario)
    schedule = parse_schedule(HOLDS[held])
    planted = None if fault is None else find_fault(fault)
    run = checker.execute(schedule=schedule, fault=planted)
    oracles = ALL_ORACLES - {left_out}
    result = checker.judge(run, schedule=schedule, fault=planted, oracles=oracles)
    kinds = [finding.kind for finding in result.findings]
    # Without the fault the host waits for the copy, which ends the hold.
    is_realised = held != "nameless" and not (held == "harmful" and fault is None)
    is_met = left_out is None and steps_max == 200 and is_realised
    assert bool(result.unmet) is not is_met
    assert result.verdict is table(
        is_wrong=bool(set(kinds) - {FindingKind.CONFLICT}),
        conflicts=kinds.count(FindingKind.CONFLICT),
        is_whole=False,
        is_met=is_met,
    )


def race(number: int, *, is_host: bool) -> Race:
    first = Side(
        operation="d2h",
        label=f"d2h@{number}#1",
        lane="stream",
        is_host=is_host,
        is_write=True,
        stack=(),
    )
    second = msgspec.structs.replace(first, label="read@x#1", is_write=False)
    return Race(
        signature=f"{number}",
        hazard=Hazard.READ_AFTER_WRITE,
        buffer="x",
        nbytes=8,
        count=1,
        first=first,
        second=second,
        edge="",
        pairs=((first.label, second.label),),
    )


class Release(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine does. base: how its run without holds ends; held: that under holds

    hosts: of each race, whether an access of the host comes first
    """

    base: Ending = Ending.FINISHED
    held: Ending = Ending.FINISHED
    hosts: tuple[bool, ...] = ()
    is_wrong: bool = False
    is_changed: bool = False
    is_realised: bool = True
    is_observed: bool = True
    is_met: bool = True
    is_dead: bool = False

    @property
    def scenario(self) -> Scenario:
        least = Expect() if self.is_met else Expect(condense_moves=1)
        return Scenario(name="small", title="one step", requests=(REQUEST,), expect=least)

    @property
    def pulses(self) -> dict[Observed, Pulse]:
        return {Observed.ACCEPTED: Pulse.DEAD if self.is_dead else Pulse.ALIVE}

    def run(self, scenario: Scenario, plan: Plan) -> ReleaseRun:
        """As an engine answers."""
        is_held = bool(plan.holds)
        ending = self.held if is_held else self.base
        value = "other" if is_held and self.is_changed else "same"
        races = tuple(race(i, is_host=is_host) for i, is_host in enumerate(self.hosts))
        return ReleaseRun(
            ending=ending,
            exit_code=int(ending is Ending.FAILED),
            findings=() if is_held else races,
            observations=(Observation("x", value, value),) if self.is_observed else (),
            realised=dict.fromkeys(texts_of(plan.holds), int(self.is_realised)),
            delivered=TOKENS,
            plain=TOKENS,
            wrong=(Wrong(step=1, what="x", used=2, true=1),) if self.is_wrong else (),
        )

    @property
    def is_decided(self) -> bool:
        return self.base in (Ending.FINISHED, Ending.FAILED)

    @property
    def is_wrong_alone(self) -> bool:
        return self.is_decided and (self.is_wrong or self.base is Ending.FAILED)

    @property
    def is_seen_to_change(self) -> bool:
        """Whether a run under holds, that did what it says, is another one."""
        is_other = (self.is_changed and self.is_observed) or self.held is Ending.FAILED
        return self.is_realised and self.held is not Ending.LOST and is_other


releases = st.builds(
    Release,
    base=st.sampled_from([Ending.FINISHED, Ending.FINISHED, Ending.FAILED, Ending.LOST]),
    held=st.sampled_from([Ending.FINISHED, Ending.FINISHED, Ending.FAILED, Ending.LOST]),
    hosts=st.lists(YES, max_size=3).map(tuple),
    is_wrong=st.sampled_from([False, False, True]),
    is_changed=st.sampled_from([False, False, True]),
    is_realised=st.sampled_from([True, True, False]),
    is_observed=st.sampled_from([True, True, False]),
    is_met=st.sampled_from([True, True, False]),
    is_dead=st.sampled_from([False, False, True]),
)


@given(engine=releases, runs_max=st.sampled_from([0, 1, 9]))
def test_a_release_that_is_searched(engine: Release, runs_max: int) -> None:
    found = judge(engine, engine.scenario, CELL, sensitivity=engine.pulses, runs_max=runs_max)
    devices = engine.hosts.count(False)
    is_searched = engine.base is Ending.FINISHED and not engine.is_wrong and bool(devices)
    needed = devices + (devices > 1)
    is_whole = (
        is_searched
        and not any(engine.hosts)
        and engine.is_realised
        and engine.held is not Ending.LOST
        and runs_max >= (devices if engine.is_seen_to_change else needed)
    )
    is_shown = is_searched and runs_max > 0 and engine.is_seen_to_change
    assert found.verdict is table(
        is_wrong=engine.is_wrong_alone or is_shown,
        conflicts=len(engine.hosts) if engine.is_decided else 0,
        is_whole=is_whole,
        is_compared=engine.is_observed,
        is_met=engine.is_decided and engine.is_met and not engine.is_dead,
    )


@given(engine=releases)
def test_a_release_under_one_hold(engine: Release) -> None:
    """The engine's own hold is never each landing, and all else is asked as in a search."""
    holds = (Hold(op="d2h@0#1"),)
    found = judge_under(engine, engine.scenario, CELL, holds, sensitivity=engine.pulses)
    is_held_decided = engine.held is not Ending.LOST
    is_held_wrong = is_held_decided and (engine.is_wrong or engine.held is Ending.FAILED)
    is_other = is_held_decided and (
        engine.held is not engine.base or (engine.is_changed and engine.is_observed)
    )
    assert found.verdict is table(
        is_wrong=engine.is_wrong_alone or is_held_wrong or is_other,
        conflicts=len(engine.hosts) if engine.is_decided else 0,
        is_whole=False,
        is_compared=engine.is_observed,
        is_met=engine.is_decided
        and is_held_decided
        and engine.is_realised
        and engine.is_met
        and not engine.is_dead,
    )


class ProgramDevice:
    """A device that runs a program with one race."""

    kind = DeviceKind.VIRTUAL

    def __init__(self, engine: Release) -> None:
        self._engine = engine

    def run(self, program: Program, plan: Plan, *, is_quiet: bool = False) -> Outcome:
        """As a device answers."""
        run = self._engine.run(self._engine.scenario, plan)
        return Outcome(**{name: getattr(run, name) for name in Outcome.__struct_fields__})


@given(engine=releases, runs_max=st.sampled_from([1, 2, 9]))
def test_a_program_that_is_searched(engine: Release, runs_max: int) -> None:
    engine = msgspec.structs.replace(
        engine, base=Ending.FINISHED, held=Ending.FINISHED, hosts=(False,)
    )
    target = ProgramTarget(ProgramDevice(engine), Program(("x.py",)))  # type: ignore[arg-type]
    base = target.run(Plan())
    found = search(target, base, Pairs(), runs_max=runs_max)
    is_tried = runs_max > 1
    (judged,) = found.races
    assert VERDICTS[judged.effect] is table(
        is_wrong=is_tried and engine.is_changed and engine.is_observed,
        conflicts=1,
        is_whole=is_tried and engine.is_realised,
        is_compared=engine.is_observed,
        is_met=True,
    )


class Engine:
    """An adapter's engine in this process, with one copy that the host does not wait for."""

    def __init__(self, engine: Release, offers: frozenset[Offer]) -> None:
        self._engine = engine
        self.hello = HelloAnswer(
            to=0,
            schema="",
            engine="toy",
            version="1",
            lanes=("copy",),
            offers=tuple(sorted(offers)),
        )

    def plain(self, scenario: OwnScenario) -> dict[str, tuple[int, ...]]:
        """Plain decoding."""
        return TOKENS

    def run(
        self, scenario: OwnScenario, *, schedule: Schedule, plant: Plant | None, device: str
    ) -> AdapterRun:
        """As an engine answers."""
        is_late = bool(schedule.holds) and self._engine.is_changed
        known = 0 if self._engine.hosts else 1
        copy = OpRecord("d2h:x@1", 1, 1, 1, (1, 0), (Access("x", 0, 1, True),))
        take = HostAccess("host:take@2", 2, 2, (2, known), Access("x", 0, 1, False))
        holds = tuple(
            HoldOutcome(hold=text, matched=1, realised=int(self._engine.is_realised))
            for text in schedule.texts()
        )
        seen = Seen(step=1, boundary=Boundary.SAMPLED, values={"count": 2 if is_late else 1})
        run = Run(
            trace=Trace(lanes=("host", "copy"), events=(copy, take), holds=holds),
            observations=(seen,) if Offer.OBSERVATIONS in self.hello.offers else (),
            edges=(),
            result=EngineResult(
                delivered=TOKENS,
                finished={"A": "max_tokens"},
                steps=2,
                counters={},
                unmet_events=(),
            ),
            stopped=None,
            seconds=0.0,
        )
        return AdapterRun(run=run, owners_seen=0, digest="")


@given(
    engine=releases,
    offers=st.frozensets(st.sampled_from([Offer.PLAIN, Offer.OBSERVATIONS, Offer.HOLDS])),
    is_held=YES,
)
def test_an_adapter(engine: Release, offers: frozenset[Offer], *, is_held: bool) -> None:
    """Searched, or under a hold; one that offers no holds cannot be asked for one."""
    least = Expect() if engine.is_met else Expect(condense_moves=1)
    scenario = OwnScenario(name="small", title="one step", requests=(REQUEST,), expect=least)
    adapter = Engine(engine, offers)
    asked = AdapterJudge(adapter, scenario)  # type: ignore[arg-type]
    has_holds, has_race = Offer.HOLDS in offers, bool(engine.hosts)
    hold = parse_schedule(["d2h:x@1 until host:take@2"])
    found = asked.under(hold) if is_held else asked.judge()
    is_run = is_held or (has_race and has_holds)
    is_met = engine.is_met and Offer.PLAIN in offers
    assert found.verdict is table(
        is_wrong=is_run and engine.is_changed and Offer.OBSERVATIONS in offers,
        conflicts=int(has_race),
        is_whole=not is_held and has_holds and engine.is_realised,
        is_compared=Offer.OBSERVATIONS in offers,
        is_met=is_met and (engine.is_realised or not is_held),
    )
    assert not (found.verdict is Verdict.BENIGN and not has_holds)
