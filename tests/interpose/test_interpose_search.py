"""The search over landings, on a device that only answers what a hold would show."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from racegate.history.finding import Hazard, Race, Side, Verdict
from racegate.history.schedule import FORCED, AccessPlace, Hold, parse_hold, texts_of
from racegate.interpose.device.touches import QUERIES
from racegate.interpose.outcome import DeviceKind, Ending, Observation, Outcome, Plan
from racegate.report.targets.programs import render
from racegate.targets.common.landings import LandingRun, OnRun, combined, number_of, repeats
from racegate.targets.common.search import LEFT_MAX, POLLS, VERDICTS, LandingSearch
from racegate.targets.common.search import search as search_landings
from racegate.targets.program.explore import Pairs
from racegate.targets.program.judge import ProgramTarget, ProgramVerdict, judge_on, under
from racegate.targets.program.launch import Program
from racegate.targets.program.words import ending_of

PROGRAM = Program(("program.py",))


def side(label: str, *, is_write: bool, is_host: bool = False) -> Side:
    return Side(
        operation=label.partition("@")[0],
        label=label,
        lane="the host" if is_host else "stream 1",
        is_host=is_host,
        is_write=is_write,
        stack=(),
    )


def finding(first: str, *seconds: str, is_host: bool = False, nbytes: int = 8) -> Race:
    return Race(
        hazard=Hazard.READ_AFTER_WRITE,
        signature=first,
        buffer="x",
        nbytes=nbytes,
        count=len(seconds),
        first=side(first, is_write=True, is_host=is_host),
        second=side(seconds[0], is_write=False),
        edge="",
        pairs=tuple((first, second) for second in seconds),
    )


def observed(**values: str) -> tuple[Observation, ...]:
    return tuple(Observation(name, value, value) for name, value in values.items())


def outcome(value: str, *findings: Race) -> Outcome:
    return Outcome(ending=Ending.FINISHED, findings=findings, observations=observed(value=value))


class Answers:
    """A device on which certain sets of holds change what is observed."""

    kind = DeviceKind.VIRTUAL

    def __init__(self, *harmful: tuple[str, str] | frozenset[tuple[str, str]]) -> None:
        self.harmful = [one if isinstance(one, frozenset) else frozenset([one]) for one in harmful]
        self.plans: list[Plan] = []

    def run(self, program: Program, plan: Plan, *, is_quiet: bool = False) -> Outcome:
        self.plans.append(plan)
        is_wrong = any(harm <= set(plan.holds) for harm in self.harmful)
        return Outcome(
            ending=Ending.FINISHED,
            observations=observed(value="wrong" if is_wrong else "right"),
            realised=dict.fromkeys(texts_of(plan.holds), 1),
        )


class Scripted(Answers):
    """A device that answers every plan with a function of it."""

    def __init__(self, answer: Callable[[Plan], Outcome]) -> None:
        super().__init__()
        self._answer = answer

    def run(self, program: Program, plan: Plan, *, is_quiet: bool = False) -> Outcome:
        self.plans.append(plan)
        return self._answer(plan)


def verdicts(found: LandingSearch[Outcome]) -> list[Verdict]:
    return [VERDICTS[judged.effect] for judged in found.races]


def search(
    device: Any,
    program: Program,
    base: Outcome,
    *,
    runs_max: int,
    polled: Outcome | None = None,
    on_run: OnRun | None = None,
) -> LandingSearch[Outcome]:
    """The search over the landings of a program."""
    target, source = ProgramTarget(device, program), Pairs(device.kind)
    ended_by = (KeyboardInterrupt,)
    asked = partial(search_landings, runs_max=runs_max, polled=polled, on_run=on_run)
    return asked(target, base, source, ended_by=ended_by)


def shown_by(found: LandingSearch[Outcome]) -> LandingRun[Outcome]:
    """The run that shows the first race."""
    landing = found.races[0].landing
    assert landing is not None
    return landing


def test_a_hold_that_changes_a_value_makes_the_finding_divergent() -> None:
    base = outcome("right", finding("d2h@x:1#1", "host@x:2#1"))
    found = search(Answers(Hold(op="d2h@x:1#1")), PROGRAM, base, runs_max=8)
    assert verdicts(found) == [Verdict.DIVERGENT]
    assert found.races[0].holds == (Hold(op="d2h@x:1#1"),)
    landing = shown_by(found)
    assert (landing.base.observations, landing.what.observations) == (
        observed(value="right"),
        observed(value="wrong"),
    )


def test_a_landing_between_two_reads_is_tried() -> None:
    base = outcome("right", finding("d2h@x:1#1", "host@x:2#1", "host@x:3#1"))
    found = search(Answers(Hold(op="d2h@x:1#1", until="host@x:3#1")), PROGRAM, base, runs_max=8)
    assert found.races[0].holds == (Hold(op="d2h@x:1#1", until="host@x:3#1"),)


def test_benign_only_if_every_landing_was_tried() -> None:
    base = outcome("right", finding("d2h@x:1#1", "host@x:2#1", "host@x:3#1"))
    found = search(Answers(), PROGRAM, base, runs_max=8)
    assert (found.is_complete, verdicts(found), found.left) == (True, [Verdict.BENIGN], 0)
    short = search(Answers(), PROGRAM, base, runs_max=2)
    assert (short.is_complete, verdicts(short), short.left) == (False, [Verdict.CONFLICT], 1)
    assert (found.tried.text, short.tried.text) == (
        "each of 2 combinations of landings",
        "1 of 2 landings",
    )


def test_a_copy_of_more_than_a_word_is_torn_when_no_whole_landing_shows_anything() -> None:
    base = outcome("right", finding("d2h@x:1#1", "host@x:2#1", nbytes=64))
    torn = parse_hold("start of d2h@x:1#1")
    found = search(Answers(torn), PROGRAM, base, runs_max=8)
    assert (verdicts(found), found.races[0].holds) == ([Verdict.DIVERGENT], (torn,))
    device = Answers()
    benign = search(device, PROGRAM, base, runs_max=8)
    assert (verdicts(benign), benign.is_complete) == ([Verdict.BENIGN], True)
    assert [plan.holds for plan in device.plans] == [
        (),
        (Hold(op="d2h@x:1#1"),),
        (parse_hold("start of d2h@x:1#1"),),
        (parse_hold("rest of d2h@x:1#1"),),
    ]
    short = search(Answers(), PROGRAM, base, runs_max=3)
    assert (verdicts(short), short.left) == ([Verdict.CONFLICT], 1)


def test_neither_a_word_nor_a_kernel_nor_a_copy_of_a_gpu_is_torn() -> None:
    word = outcome("right", finding("d2h@x:1#1", "host@x:2#1", nbytes=8))
    kernel = outcome("right", finding("add@x:1#1", "host@x:2#1", nbytes=64))
    copy = outcome("right", finding("d2h@x:1#1", "host@x:2#1", nbytes=64))
    gpu = Answers()
    gpu.kind = DeviceKind.CUDA
    for device, base in ((Answers(), word), (Answers(), kernel), (gpu, copy)):
        found = search(device, PROGRAM, base, runs_max=8)
        assert (found.runs, verdicts(found)) == (2, [Verdict.BENIGN])


def test_what_only_shows_together_is_made_small() -> None:
    names = [f"d2h@x:{number}#1" for number in range(12)]
    base = outcome("right", *(finding(name, f"host@y:{name}#1") for name in names))
    pair = frozenset([Hold(op=names[3]), Hold(op=names[7])])
    found = search(Answers(pair), PROGRAM, base, runs_max=64)
    shown = {one.race.signature: one.landing for one in found.races if one.landing is not None}
    assert set(shown) == {names[3], names[7]}
    for landing in shown.values():
        assert (set(landing.holds), landing.is_smallest) == (set(pair), True)


def test_what_does_not_show_beside_a_divergent_finding_is_not_called_benign() -> None:
    base = outcome(
        "right",
        finding("a@x:1#1", "host@x:2#1"),
        finding("b@x:1#1", "host@x:3#1"),
    )
    found = search(Answers(Hold(op="a@x:1#1")), PROGRAM, base, runs_max=8)
    assert verdicts(found) == [Verdict.DIVERGENT, Verdict.CONFLICT]


def test_a_search_of_very_many_landings_ends_and_says_what_is_left() -> None:
    seconds = [f"host@y:{number}#1" for number in range(20)]
    base = outcome("right", *(finding(f"d2h@x:{n}#1", *seconds) for n in range(100)))
    device = Answers()
    found = search(device, PROGRAM, base, runs_max=10)
    assert (found.runs, len(device.plans), found.is_complete) == (10, 10, False)
    assert found.left == LEFT_MAX
    assert msgspec.json.decode(msgspec.json.encode(found), type=LandingSearch[Outcome]) == found


def test_every_combination_comes_once_and_few_holds_first() -> None:
    landings = {"a": ("1", "2"), "b": ("3",)}
    a1, a2, b3 = (Hold(op=op, until=until) for op, until in ("a1", "a2", "b3"))
    assert list(combined(landings)) == [(a1,), (a2,), (b3,), (a1, b3), (a2, b3)]


def test_what_differs_without_any_hold_is_not_compared() -> None:
    base = outcome("right", finding("d2h@x:1#1", "host@x:2#1"))
    ticks = itertools.count()

    def answer(plan: Plan) -> Outcome:
        seen = observed(value=f"at {next(ticks)} ns")
        return Outcome(ending=Ending.FINISHED, observations=seen)

    found = search(Scripted(answer), PROGRAM, base, runs_max=8)
    assert verdicts(found) == [Verdict.CONFLICT]
    assert "differs from run to run without holds: value" in found.limits[0]


def test_a_program_that_ends_otherwise_the_second_time_is_not_searched() -> None:
    base = outcome("right", finding("d2h@x:1#1", "host@x:2#1"))
    device = Scripted(lambda plan: Outcome(ending=Ending.FAILED, exit_code=1))
    found = search(device, PROGRAM, base, runs_max=8)
    assert (verdicts(found), found.runs) == ([Verdict.CONFLICT], 1)
    assert "a second run without holds ended differently" in found.limits[0]


def test_a_crash_under_a_hold_is_divergent_and_no_end_is_not() -> None:
    base = outcome("right", finding("d2h@x:1#1", "host@x:2#1"))

    def ending(how: Ending) -> LandingSearch[Outcome]:
        held = Outcome(ending=how, exit_code=1, message="why")
        answers = Scripted(lambda plan: held if plan.holds else outcome("right"))
        return search(answers, PROGRAM, base, runs_max=8)

    for how in (Ending.FAILED, Ending.LOST):
        assert (verdicts(ending(how)), ending_of(shown_by(ending(how)))) == (
            [Verdict.DIVERGENT],
            "why",
        )
    for how in (Ending.TIMED_OUT, Ending.NOT_MODELLED):
        assert verdicts(ending(how)) == [Verdict.CONFLICT]
        assert ending(how).limits == ("1 runs under holds did not come to an end",)


def test_nothing_observed_is_not_benign() -> None:
    base = Outcome(ending=Ending.FINISHED, findings=(finding("d2h@x:1#1", "host@x:2#1"),))
    silent = Scripted(lambda plan: Outcome(ending=Ending.FINISHED))
    assert verdicts(search(silent, PROGRAM, base, runs_max=8)) == [Verdict.CONFLICT]


def test_a_hold_that_kept_nothing_back_tried_nothing() -> None:
    base = outcome("right", finding("d2h@x:1#1", "host@x:2#1"))

    def answer(plan: Plan) -> Outcome:
        realised = dict.fromkeys(texts_of(plan.holds), 0)
        return Outcome(
            ending=Ending.FINISHED, observations=observed(value="right"), realised=realised
        )

    found = search(Scripted(answer), PROGRAM, base, runs_max=8)
    assert (verdicts(found), found.is_complete) == ([Verdict.CONFLICT], False)


def test_host_threads_and_graphs_are_never_called_benign() -> None:
    for first, is_host in (("host write@x:1#1", True), ("graph@x:1#1", False)):
        base = outcome("right", finding(first, "h2d@x:2#1", is_host=is_host))
        found = search(Answers(), PROGRAM, base, runs_max=8)
        assert verdicts(found) == [Verdict.CONFLICT]
        assert "have more orders" in found.limits[0]


def test_holds_are_tried_with_every_answer_to_queries() -> None:
    base = outcome("right", finding("d2h@x:1#1", "host@x:2#1"))

    def answer(plan: Plan) -> Outcome:
        is_wrong = bool(plan.holds) and plan.polls == POLLS
        return outcome("wrong" if is_wrong else "right")

    device = Scripted(answer)
    found = search(device, PROGRAM, base, runs_max=8, polled=outcome("right"))
    assert [plan.polls for plan in device.plans] == [0, 0, POLLS]
    assert (verdicts(found), shown_by(found).polls) == ([Verdict.DIVERGENT], POLLS)


def test_a_hold_is_blamed_for_no_difference_that_the_answers_make_alone() -> None:
    base = outcome("right", finding("d2h@x:1#1", "host@x:2#1"))
    device = Scripted(lambda plan: outcome("polled" if plan.polls else "right"))
    found = search(device, PROGRAM, base, runs_max=8, polled=outcome("polled"))
    assert verdicts(found) == [Verdict.BENIGN]


def test_answers_to_queries_that_change_a_value_are_a_finding_of_their_own() -> None:
    def answer(plan: Plan) -> Outcome:
        return Outcome(
            ending=Ending.FINISHED,
            observations=observed(value="other" if plan.polls else "right"),
            not_seen={QUERIES: 1},
        )

    judged = judge_on(Scripted(answer), PROGRAM, explores=False, runs_max=8)
    assert (judged.polls_matter, judged.exit_code) == (("value",), 1)
    same = judge_on(
        Scripted(lambda plan: Outcome(ending=Ending.FINISHED, not_seen={QUERIES: 1})),
        PROGRAM,
        explores=False,
        runs_max=8,
    )
    assert (same.polls_matter, same.exit_code) == ((), 0)


def held(device: Answers, hold: Hold) -> ProgramVerdict:
    return under(device, PROGRAM, (hold,))


def test_a_hold_by_hand_is_judged_beside_the_recorded_run() -> None:
    """What it changes is a finding; a race that it does not show is still one."""
    race = finding("d2h@x:1#1", "host@x:2#1")
    hold = Hold(op="d2h@x:1#1")

    def answer(plan: Plan) -> Outcome:
        found = (race,) if plan.is_recording and is_racy else ()
        value = "wrong" if plan.holds and is_wrong else "right"
        realised = dict.fromkeys(texts_of(plan.holds), kept)
        return msgspec.structs.replace(outcome(value, *found), realised=realised)

    is_racy, is_wrong, kept = True, True, 1
    found = held(Scripted(answer), hold)
    assert (found.changes, found.exit_code, found.races) == (("value",), 1, (race,))
    assert "DIVERGENT the holds change: value" in render(found, "x.py")
    is_wrong = False
    assert (held(Scripted(answer), hold).changes, held(Scripted(answer), hold).exit_code) == ((), 1)
    is_racy = False
    assert held(Scripted(answer), hold).exit_code == 0
    kept = 0
    assert held(Scripted(answer), hold).exit_code == 4, "it tried nothing"


def test_a_hold_by_hand_is_not_blamed_for_what_differs_without_it() -> None:
    ticks = itertools.count()
    answers = Scripted(lambda plan: outcome(f"at {next(ticks)} ns"))
    found = held(answers, Hold(op="d2h@x:1#1"))
    assert (found.changes, found.exit_code, len(answers.plans)) == ((), 0, 3)


def test_an_interrupted_search_keeps_what_it_has() -> None:
    base = outcome("right", *(finding(f"{name}@x:1#1", "host@x:2#1") for name in "abc"))

    def answer(plan: Plan) -> Outcome:
        if plan.holds and plan.holds[0].op == "b@x:1#1":
            raise KeyboardInterrupt
        return outcome("wrong" if plan.holds else "right")

    found = search(Scripted(answer), PROGRAM, base, runs_max=8)
    assert found.is_interrupted
    assert verdicts(found) == [Verdict.DIVERGENT, Verdict.CONFLICT, Verdict.CONFLICT]


def test_the_search_tells_how_far_it_is() -> None:
    base = outcome("right", finding("d2h@x:1#1", "host@x:2#1"))
    told: list[tuple[int, int]] = []
    search(Answers(), PROGRAM, base, runs_max=8, on_run=lambda *made: told.append(made))
    assert told == [(1, 8), (2, 8)]


PLACED = st.lists(
    st.tuples(st.integers(0, 1), st.lists(st.integers(1, 5), max_size=3, unique=True)), max_size=3
)


@given(PLACED)
def test_combinations_that_repeat_another_are_neither_made_nor_counted(
    placed: list[tuple[int, list[int]]],
) -> None:
    """Each operation by its stream, and by how much later the accesses are that it races with."""
    positions = {f"op{at}": AccessPlace(lane, at) for at, (lane, _) in enumerate(placed)}
    positions |= {f"access{at}": AccessPlace(9, at) for at in range(9)}
    untils = {
        f"op{at}": (*(f"access{at + more}" for more in sorted(later)), FORCED)
        for at, (_, later) in enumerate(placed)
    }
    own = [holds for holds in combined(untils) if not repeats(holds, positions)]
    assert len(own) == number_of(untils, positions)
    ends = {frozenset(_ends(untils, {h.op: h.until for h in holds}, positions)) for holds in own}
    assert len(ends) == len(own), "each makes a schedule of its own"
    every = combined(untils)
    again = (_ends(untils, {h.op: h.until for h in holds}, positions) for holds in every)
    assert {frozenset(one) for one in again} == ends, "and no schedule is left out"


def _ends(
    untils: dict[str, tuple[str, ...]], held: dict[str, str], positions: dict[str, AccessPlace]
) -> list[tuple[str, int | str]]:
    """What each operation waits for at last: an access, itself or through one before it on its
    stream, or a wait.
    """
    ends: list[tuple[str, int | str]] = []
    latest: dict[int, int] = {}
    for op in untils:
        lane, until = positions[op].lane, held.get(op, "")
        if until in positions:
            latest[lane] = max(latest.get(lane, -1), positions[until].at)
        ends.append((op, FORCED if until == FORCED else latest.get(lane, -1)))
    return ends
