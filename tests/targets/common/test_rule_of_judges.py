"""The judges of releases and of programs say the word that the table has, whatever runs came to."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from racegate.history.finding import Hazard, Race, Side, Verdict
from racegate.history.schedule import Hold
from racegate.history.verdict import Reach, Tried, is_whole
from racegate.interpose.outcome import DeviceKind, Ending, Observation, Outcome, Plan
from racegate.scenario.expect import Expect
from racegate.scenario.spec import Request, Scenario
from racegate.targets.common.judge import ReleaseVerdict, judge, judge_under
from racegate.targets.common.search import Effect, LandingSearch, search
from racegate.targets.common.sensitivity import Pulse
from racegate.targets.common.wire import Observed, ReleaseRun
from racegate.targets.program.explore import Pairs
from racegate.targets.program.judge import CHILDREN_WORK, NO_WORK, ProgramTarget, unjudged
from racegate.targets.program.launch import Program
from racegate.targets.program.ranks import LOST
from racegate.targets.vllm.cell import Cell
from racegate.targets.vllm.wire import ModelRunner, StateMode

CELL = Cell(release="1.0", runner=ModelRunner.V1, mode=StateMode.NONE)
SCENARIO = Scenario(
    name="small",
    title="one step",
    requests=(Request(name="A", arrive=0, prompt=(1,), max_tokens=1),),
    expect=Expect(reorder_moves=1),
)
PROGRAM = Program(("program.py",))
OPERATIONS = ("d2h@a#1", "d2h@b#1", "h2d@c#1")
CUT = (Ending.TIMED_OUT, Ending.LOST, Ending.NOT_MODELLED)


def race(name: str, *, is_host: bool) -> Race:
    """Of an operation, or of an access of the host, and a later access of the host."""

    def side(label: str, *, is_host: bool) -> Side:
        return Side(
            operation="op", label=label, lane="", is_host=is_host, is_write=not is_host, stack=()
        )

    return Race(
        signature=name,
        hazard=Hazard.READ_AFTER_WRITE,
        buffer="x",
        nbytes=8,
        count=1,
        first=side(name, is_host=is_host),
        second=side(f"host@{name}", is_host=True),
        edge="",
        pairs=((name, f"host@{name}"),),
    )


class Drawn:
    """An engine whose races, gaps and harm are drawn from a seed, and are the same in every run."""

    def __init__(self, seed: int) -> None:
        draw = Random(seed)
        self.racing = [name for name in OPERATIONS if draw.random() < 0.5]
        self.is_host = draw.random() < 0.1
        self.gaps = {name: ("first", *["gap"] * draw.randint(0, 1)) for name in OPERATIONS}
        self.harmful = {name for name in self.racing if draw.random() < 0.15}
        self.lost = {name for name in self.racing if draw.random() < 0.15}
        self.cut = {name for name in self.racing if draw.random() < 0.1}
        self.observes = draw.random() < 0.8
        self.moves = int(draw.random() < 0.8)
        self.ending = draw.choice([Ending.FINISHED] * 9 + [draw.choice((*CUT, Ending.FAILED))])

    def run(self, scenario: Scenario, plan: Plan) -> ReleaseRun:
        """As an engine answers."""
        held = {hold.op for hold in plan.holds}
        value = "wrong" if held & self.harmful else "right"
        ending = Ending.TIMED_OUT if held & self.cut else self.ending
        races = [race(name, is_host=self.is_host) for name in self.racing]
        seen = (Observation("value", value, value),) if self.observes else ()
        return ReleaseRun(
            ending=ending,
            findings=tuple(races) if plan.is_recording else (),
            observations=seen,
            realised={hold.text(): int(hold.op not in self.lost) for hold in plan.holds},
            counters={"reorder_moves": self.moves},
            gaps={operation: self.gaps[operation] for operation in held},
        )


def expected(engine: Drawn, *, is_dead: bool) -> Verdict:
    """By the words of the table, from what was drawn."""
    if engine.ending in CUT:
        return Verdict.INCONCLUSIVE
    if engine.ending is Ending.FAILED:
        return Verdict.DIVERGENT
    held = set() if engine.is_host else set(engine.racing)
    landed = held - engine.lost - engine.cut
    if engine.observes and landed & engine.harmful:
        return Verdict.DIVERGENT
    if engine.racing and (landed != set(engine.racing) or not engine.observes):
        return Verdict.CONFLICT
    if not engine.moves or is_dead:
        return Verdict.INCONCLUSIVE
    return Verdict.BENIGN if engine.racing else Verdict.PROVED


def judged(seed: int, *, is_dead: bool) -> ReleaseVerdict:
    dead = {Observed.TOKENS: Pulse.DEAD} if is_dead else {}
    return judge(Drawn(seed), SCENARIO, CELL, sensitivity=dead)


@pytest.mark.parametrize("is_dead", [False, True])
def test_a_release_is_judged_by_the_table(*, is_dead: bool) -> None:
    said = set()
    for seed in range(400):
        found = judged(seed, is_dead=is_dead)
        assert found.verdict is expected(Drawn(seed), is_dead=is_dead), seed
        said.add(found.verdict)
        if found.verdict is Verdict.BENIGN:
            assert is_whole(found.tried) and found.tried.reach is Reach.EACH_ALONE
    some = {Verdict.CONFLICT, Verdict.DIVERGENT, Verdict.INCONCLUSIVE}
    assert said == (some if is_dead else some | {Verdict.BENIGN, Verdict.PROVED})


def test_one_hold_by_hand_is_never_benign() -> None:
    for seed in range(400):
        engine = Drawn(seed)
        found = judge_under(engine, SCENARIO, CELL, (Hold(op=OPERATIONS[0]),))
        assert found.verdict is not Verdict.BENIGN
        is_open = engine.racing and engine.ending is Ending.FINISHED
        assert not is_open or found.verdict in (Verdict.CONFLICT, Verdict.DIVERGENT), seed
        assert found.tried in (Tried(reach=Reach.SOME, number=n) for n in (0, 1))


def test_a_program_is_benign_only_with_every_combination() -> None:
    said = set()
    for seed in range(200):
        engine = Drawn(seed)
        found = searched(engine)
        for one in found.races:
            said.add(one.effect)
            is_harmed = engine.observes and bool(engine.harmful - engine.cut)
            assert one.effect is not Effect.BENIGN or not (is_harmed or engine.lost), seed
            is_all = found.tried.reach is Reach.COMBINATIONS and engine.observes
            is_shown = one.landing is not None
            assert (one.effect is Effect.BENIGN) == (is_all and not is_shown), seed
            assert (one.effect is Effect.DIVERGENT) == is_shown, seed
    assert said == {Effect.BENIGN, Effect.UNKNOWN, Effect.DIVERGENT}


class DrawnDevice:
    """The same as a program on a device."""

    kind = DeviceKind.VIRTUAL

    def __init__(self, engine: Drawn) -> None:
        self.engine = engine

    def run(self, program: Program, plan: Plan, *, is_quiet: bool = False) -> Outcome:
        """As a device answers."""
        run = self.engine.run(SCENARIO, plan)
        found = Outcome(**{name: getattr(run, name) for name in Outcome.__struct_fields__})
        is_cut = found.ending is Ending.TIMED_OUT and bool(plan.holds)
        return found if is_cut else msgspec.structs.replace(found, ending=Ending.FINISHED)


def searched(engine: Drawn) -> LandingSearch[Outcome]:
    target = ProgramTarget(DrawnDevice(engine), PROGRAM)  # type: ignore[arg-type]
    base = target.run(Plan())
    return search(target, base, Pairs(), runs_max=64)


@pytest.mark.parametrize("work", [None, 0, 3])
@pytest.mark.parametrize("of_children", [0, 2])
@pytest.mark.parametrize("lost", [0, 1])
@pytest.mark.parametrize("ending", [Ending.FINISHED, Ending.LOST])
def test_what_nobody_judged_of_a_program_is_said_with_how_much_it_is(
    work: int | None, of_children: int, lost: int, ending: Ending
) -> None:
    ended = Outcome(
        ending=ending,
        work=work,
        work_of_children=of_children,
        not_seen={LOST: lost} if lost else {},
    )
    said = {NO_WORK: work == 0, f"{CHILDREN_WORK}: 2": of_children, f"{LOST}: 1": lost}
    expected = [reason for reason, is_so in said.items() if is_so]
    assert list(unjudged(ended)) == (expected if ending is Ending.FINISHED else [])
