"""What a search over landings tries, how many it knows of, what it leaves open; and what is said of
a run that it shows. On targets that are told, not run.
"""

from __future__ import annotations

from string import ascii_lowercase
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from racegate.history.finding import FindingKind, Hazard, Race, Side, Verdict
from racegate.history.schedule import Half, Hold, Holds, texts_of
from racegate.history.verdict import NOTHING_TRIED, Reach
from racegate.interpose.device.touches import OTHER_THREADS
from racegate.interpose.outcome import (
    DeviceKind,
    Ending,
    Observation,
    Outcome,
    Plan,
)
from racegate.scenario.spec import Request, Scenario
from racegate.targets.common.judge import PENALISED, Gaps, judge, unmet_expectations
from racegate.targets.common.landings import LandingRun, LandingRuns
from racegate.targets.common.result import _wrong_in, change_lines, result_of
from racegate.targets.common.search import Effect, search
from racegate.targets.common.wire import ReleaseRun, Wrong
from racegate.targets.program.explore import Pairs, _alone
from racegate.targets.program.judge import POLLS, QUERIES, ProgramVerdict, judge_on
from racegate.targets.program.launch import Program
from racegate.targets.vllm.cell import Cell
from racegate.targets.vllm.wire import ModelRunner, StateMode


def observed(digest: str, *names: str) -> tuple[Observation, ...]:
    return tuple(Observation(name=name, digest=digest, preview="") for name in names)


BASE = Outcome(ending=Ending.FINISHED, observations=observed("1", "x"))
OTHER = msgspec.structs.replace(BASE, observations=observed("2", "x"))
HELD = (Hold(op="d2h@a", until="read@b"),)


def side(label: str, *, is_write: bool) -> Side:
    return Side(operation="d2h", label=label, lane="s", is_host=False, is_write=is_write, stack=())


def race(first: str = "d2h@a", *seconds: str, nbytes: int = 64) -> Race:
    return Race(
        signature=first,
        hazard=Hazard.READ_AFTER_WRITE,
        buffer="x",
        nbytes=nbytes,
        count=1,
        first=side(first, is_write=True),
        second=side((seconds or ("read@b",))[0], is_write=False),
        edge="",
        pairs=tuple((first, second) for second in seconds or ("read@b",)),
    )


class Told:
    """A target that runs nothing. plans: that it was asked for"""

    def __init__(self, held: Outcome = OTHER) -> None:
        self.plans: list[Plan] = []
        self._held = held

    def run(self, plan: Plan) -> Outcome:
        """Another value under any hold."""
        self.plans.append(plan)
        return self._held if plan.holds else BASE


class Source:
    """Landings of one operation each. known: how many it says there are"""

    reach = Reach.EACH_ALONE

    def __init__(self, *landings: Holds, known: int) -> None:
        self._landings = landings
        self._known = known

    def landings(self, runs: Any) -> Any:
        """As given."""
        return iter(self._landings)

    def known(self, runs: Any) -> int:
        """As given."""
        return self._known

    def limits(self, runs: Any) -> tuple[str, ...]:
        """None."""
        return ()


def test_a_landing_that_does_harm_is_not_tried_with_other_answers() -> None:
    target = Told()
    runs = LandingRuns(target, {0: BASE, POLLS: BASE}, runs_max=20)
    runs.try_all([HELD])
    assert [harm.polls for harm in runs.harms] == [0]
    assert {plan.polls for plan in target.plans} == {0}
    quiet = Told(BASE)
    LandingRuns(quiet, {0: BASE, POLLS: BASE}, runs_max=20).try_all([HELD])
    assert [plan.polls for plan in quiet.plans] == [0, POLLS]


@pytest.mark.parametrize(("known", "left"), [(0, 0), (1, 0), (2, 0), (5, 3)])
def test_what_is_left_is_what_is_known_and_was_not_tried(known: int, left: int) -> None:
    """A source may find more on its way than it knew of."""
    more = (Hold(op="d2h@c", until="read@b"),)
    found = search(Told(BASE), BASE, Source(HELD, more, known=known), runs_max=9)
    assert (found.left, found.runs, found.harms) == (left, 2, ())


def a_search(*races: Race, bases: int = 1, **known: Any) -> Any:
    base = msgspec.structs.replace(BASE, findings=races, **known)
    return LandingRuns(Told(BASE), dict.fromkeys(range(bases), base), runs_max=9)


def test_a_program_has_each_landing_with_each_answer() -> None:
    """Two points of one copy, and each of its halves at each of them."""
    pairs = Pairs(DeviceKind.VIRTUAL)
    raced = race("d2h@a", "read@b", "read@c")
    assert pairs.known(a_search(raced)) == 2 + 2 * len(Half)
    assert pairs.known(a_search(raced, bases=2)) == 2 * pairs.known(a_search(raced))
    assert pairs.known(a_search(race(nbytes=4))) == 1, "a word is not torn"


def test_a_torn_copy_is_late_as_long_as_it_may_be_before_it_is_less_so() -> None:
    pairs = Pairs(DeviceKind.VIRTUAL)
    raced = race("d2h@a", "read@b", "read@c")
    torn = list(pairs._torn(raced, {"d2h@a": ("read@c", "forced")}))
    assert [holds[0].until for holds in torn] == ["forced"] * 2 + ["read@c"] * 2
    assert {holds[0].half for holds in torn} == set(Half)
    assert not list(Pairs(DeviceKind.CUDA)._torn(raced, {"d2h@a": ("forced",)}))


def test_what_may_yet_be_harmful_is_said() -> None:
    runs = a_search(race(), not_seen={OTHER_THREADS: 1})
    runs.unstable = frozenset(["b", "a", "c"])
    limits = Pairs(DeviceKind.VIRTUAL).limits(runs)
    assert limits == (
        "not compared, because it differs from run to run without holds: a, b, c",
        "host threads of the program run in one order only",
    )
    assert Pairs(DeviceKind.VIRTUAL).limits(a_search(race())) == ()


class ToldDevice:
    """A device that runs a program with one race, which polls. asked: plans, and whether quietly"""

    kind = DeviceKind.VIRTUAL

    def __init__(self, polled: Ending = Ending.FINISHED, held: Outcome = OTHER) -> None:
        self.asked: list[tuple[Plan, bool]] = []
        self._polled = polled
        self._held = held

    def run(self, program: Program, plan: Plan, *, is_quiet: bool = False) -> Outcome:
        """Another value under any hold."""
        self.asked.append((plan, is_quiet))
        ending = self._polled if plan.polls else Ending.FINISHED
        found = self._held if plan.holds else BASE
        return msgspec.structs.replace(
            found,
            ending=ending,
            work=3,
            events=3,
            findings=(race(nbytes=4),),
            not_seen={QUERIES: 1},
            realised=dict.fromkeys(texts_of(plan.holds), 1),
        )


def judged(device: ToldDevice, *, explores: bool = True) -> ProgramVerdict:
    given: Any = device
    return judge_on(given, Program(("x.py",)), explores=explores, runs_max=9)


def test_what_a_program_prints_is_shown_once_and_its_search_is_part_of_its_verdict() -> None:
    device = ToldDevice()
    found = judged(device)
    assert found.search is not None and found.search.harms and found.verdict is Verdict.DIVERGENT
    assert [is_quiet for _, is_quiet in device.asked][:2] == [False, True]
    assert all(is_quiet for _, is_quiet in device.asked[1:])
    assert not found.is_interrupted
    assert judged(ToldDevice(), explores=False).search is None


def test_landings_say_nothing_of_the_order_of_communicators() -> None:
    """With ranks that may wait for each other all that was tried is beside the question."""
    found = judged(ToldDevice())
    order: Any = SimpleNamespace(kind=FindingKind.ORDER, signature="o")
    disagreeing = msgspec.structs.replace(found.shown, disagreements=(order,))
    beside = msgspec.structs.replace(found, shown=disagreeing)
    assert found.facts.tried != NOTHING_TRIED
    assert beside.facts.tried == NOTHING_TRIED
    assert beside.facts.conflicts == found.facts.conflicts + 1


@pytest.mark.parametrize("ending", [Ending.FINISHED, Ending.TIMED_OUT])
def test_landings_are_tried_with_other_answers_only_if_that_run_came_to_its_end(
    ending: Ending,
) -> None:
    device = ToldDevice(ending, held=BASE)
    judged(device)
    tried = {plan.polls for plan, _ in device.asked if plan.holds}
    assert tried == ({0, POLLS} if ending is Ending.FINISHED else {0})


def test_each_landing_of_one_operation_is_tried_once_the_shortest_and_the_longest_first() -> None:
    raced = race("d2h@a", "read@b", "read@c")
    untils = {"d2h@a": ("p", "q", "r", "forced")}
    points = [holds[0].until for holds in _alone(raced, untils)]
    assert points == ["p", "forced", "q", "r"]
    assert [holds[0].until for holds in _alone(raced, {"d2h@a": ("forced",)})] == ["forced"]


def test_what_polls_change_comes_by_its_name() -> None:
    first, second = (
        msgspec.structs.replace(BASE, observations=observed(value, *reversed(ascii_lowercase)))
        for value in "12"
    )
    verdict = ProgramVerdict(base=first, shown=first, polled=second)
    assert verdict.polls_matter == tuple(ascii_lowercase)


def release(**known: Any) -> ReleaseRun:
    return ReleaseRun(ending=Ending.FINISHED, **known)


def test_of_what_is_wrong_in_a_landing_four_lines_are_shown() -> None:
    wrong = tuple(Wrong(step=step, what="length", used=1, true=2) for step in range(6))
    landing = LandingRun(
        holds=HELD, polls=0, base=release(), what=release(wrong=wrong), is_harmful=True
    )
    lines = change_lines(landing)
    assert lines == [f"step {step}: length: 1 used, 2 true" for step in range(4)]


def test_a_wrong_run_without_a_wrong_value_says_what_its_holds_do() -> None:
    told: Any = SimpleNamespace(verdict=Verdict.DIVERGENT, shown=release(), search=None, message="")
    assert _wrong_in(told) == ["the holds change what is observed"]
    told.message = "it ended early"
    assert _wrong_in(told) == ["it ended early"]
    told.verdict = Verdict.CONFLICT
    assert _wrong_in(told) == []


@pytest.mark.parametrize(("temperature", "count", "is_met"), [(0, 0, 1), (0.5, 0, 0), (0.5, 1, 1)])
def test_one_penalised_sample_is_what_temperatures_are_expected_to_have(
    temperature: float, count: int, is_met: int
) -> None:
    request = Request(name="A", arrive=0, prompt=(1,), max_tokens=1, temperature=temperature)
    scenario = Scenario(name="s", title="", requests=(request,))
    unmet = unmet_expectations(CELL, scenario, release(counters={PENALISED: count}))
    assert (not unmet) == bool(is_met)


class Together:
    """A release in which operations do harm only if all of a group are held. groups: of them

    wrong: what is wrong in every run of it
    """

    def __init__(self, *groups: frozenset[str], wrong: tuple[Wrong, ...] = ()) -> None:
        self._groups = groups
        self.wrong = wrong

    def run(self, plan: Plan) -> ReleaseRun:
        """Another value where a group is held."""
        held = {hold.op for hold in plan.holds}
        shown = sum(group <= held for group in self._groups)
        return ReleaseRun(
            ending=Ending.FINISHED,
            observations=observed(str(shown), "x"),
            wrong=self.wrong,
            findings=tuple(race(one) for one in OPERATIONS),
            realised={hold.text(): 1 for hold in plan.holds},
        )


OPERATIONS = tuple(f"d2h@{name}" for name in ascii_lowercase[:9])


@given(st.permutations(OPERATIONS), st.lists(st.integers(2, 3), max_size=3))
def test_what_does_harm_only_together_is_accused_and_nothing_else(
    order: list[str], sizes: list[int]
) -> None:
    """All at once, again and again, each time without what is accused already."""
    groups, at = [], 0
    for size in sizes:
        groups.append(frozenset(order[at : at + size]))
        at += size
    target = Together(*groups)
    found = search(target, target.run(Plan()), Gaps(), runs_max=400)
    assert {frozenset(hold.op for hold in harm.holds) for harm in found.harms} == set(groups)
    accused = {one.race.signature for one in found.races if one.landing is not None}
    assert accused == {op for group in groups for op in group}
    left = {one.effect for one in found.races if one.race.signature not in accused}
    assert left <= {Effect.BENIGN}


def test_a_run_that_is_wrong_by_itself_is_searched_and_accuses_only_what_changes_it() -> None:
    wrong = Wrong(step=2, what="accepted count of A", used=3, true=1)
    target = Together(frozenset(OPERATIONS[:1]), wrong=(wrong,))
    judged = judge(target_as_engine(target), SCRIPT, CELL)
    assert judged.verdict is Verdict.DIVERGENT
    effects = [one.effect for one in judged.judged]
    assert effects == [Effect.DIVERGENT, *[Effect.BENIGN] * (len(OPERATIONS) - 1)]
    (harmful,) = [one.landing for one in judged.judged if one.landing is not None]
    assert not any("accepted count" in line for line in change_lines(harmful))
    whole = result_of(judged, "script.toml")
    assert len(whole.findings) == 1 + len(OPERATIONS), "what is wrong, and every conflict"


def target_as_engine(target: Together) -> Any:
    """What asks for a run of a scenario."""
    return SimpleNamespace(run=lambda scenario, plan: target.run(plan))


SCRIPT = Scenario(
    name="s", title="", requests=(Request(name="A", arrive=0, prompt=(1,), max_tokens=1),)
)
CELL = Cell(release="1.0", runner=ModelRunner.V1, mode=StateMode.NONE)
