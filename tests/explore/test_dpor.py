"""The reduced search against brute force, and on the engine."""

from __future__ import annotations

from random import Random

import pytest

from all_outcomes import all_outcomes
from all_schedules import all_runs
from racegate.device.recorder import Recorder
from racegate.device.stepping import Stepper, Transition, conflict
from racegate.explore.abstract import (
    AbstractProgram,
    State,
    from_events,
    random_program,
    run_program,
)
from racegate.explore.dpor import Progress, ScheduleDivergedError, explore
from racegate.explore.ladder import Noting
from racegate.faults.catalogue import find_fault
from racegate.history.trace import Access
from support import checker

PROGRAMS = 2_000


def small_program(seed: int) -> AbstractProgram:
    random = Random(seed)
    return random_program(
        random,
        streams=random.choice((1, 2, 3)),
        steps=random.randint(2, 7),
        storages=random.choice((1, 2, 3)),
        waits=0.4,
    )


def orientation(steps: list[Transition]) -> frozenset[tuple[tuple[int, int], tuple[int, int]]]:
    """Which of each conflicting pair came first: what makes two runs of a program equivalent."""
    return frozenset(
        ((a.process, a.ordinal), (b.process, b.ordinal))
        for j, b in enumerate(steps)
        for a in steps[:j]
        if a.process != b.process and conflict(a, b)
    )


def test_outcomes_are_those_of_all_linear_extensions() -> None:
    race_free = 0
    extensions = 0
    for seed in range(PROGRAMS):
        program = small_program(seed)
        outcomes, count = all_outcomes(program)
        extensions += count
        found = explore(lambda s, p=program: run_program(p, s), classes_max=100_000)
        assert found.is_complete
        assert set(found.results) == outcomes, f"program {seed}"
        if not _races(program):
            race_free += 1
            assert found.progress.classes == 1, f"program {seed}"
    assert race_free > 100
    assert extensions > 10 * PROGRAMS


def _races(program: AbstractProgram) -> bool:
    steps = [action.step for actions in program.processes for action in actions]
    return any(
        a.process < b.process
        and conflict(a, b)
        and b.clock[a.process] < a.ordinal
        and a.clock[b.process] < b.ordinal
        for a in steps
        for b in steps
    )


def test_every_class_is_run_exactly_once() -> None:
    for seed in range(400):
        program = small_program(seed)

        def noted(stepper: Stepper, program: AbstractProgram = program) -> frozenset:
            noting = Noting(stepper)
            run_program(program, noting)
            return orientation(noting.steps)

        found = explore(noted, classes_max=100_000)
        assert len(set(found.results)) == len(found.results) == found.progress.classes
        assert set(found.results) == set(all_runs(noted))
        assert found.progress.blocked == 0


def test_the_bound_is_kept_and_the_estimate_is_not_below_what_was_seen() -> None:
    program = random_program(Random(3), streams=3, steps=14, storages=2, waits=0.1)
    whole = explore(lambda s: run_program(program, s), classes_max=100_000)
    assert whole.progress.classes > 50
    part = explore(lambda s: run_program(program, s), classes_max=20)
    assert not part.is_complete
    assert part.progress.classes + part.progress.blocked == 20
    assert part.progress.estimate >= part.progress.classes


def test_it_stops_when_told() -> None:
    program = random_program(Random(3), streams=3, steps=12, storages=2, waits=0.1)
    found = explore(
        lambda s: run_program(program, s),
        classes_max=1_000,
        on_result=lambda result, progress, steps: progress.classes < 3,
    )
    assert found.progress.classes == 3
    assert not found.is_complete


def test_each_result_is_shown_as_it_comes_and_the_estimate_is_of_paths_so_far() -> None:
    """Of two writes that nothing orders each path has two branches: two classes, from the first."""
    recorder = Recorder(("s0", "s1"))
    for lane in (1, 2):
        recorder.issue(lane, "w", 0, (Access("b", 1, 1, True),))
    program = from_events(recorder)
    shown: list[tuple[object, float]] = []

    def on_result(result: object, progress: Progress, steps: list[Transition]) -> bool:
        shown.append((result, progress.estimate))
        return True

    found = explore(lambda s: run_program(program, s), classes_max=9, on_result=on_result)
    assert [result for result, _ in shown] == list(found.results)
    assert len(set(found.results)) == 2
    assert [estimate for _, estimate in shown] == [2.0, 2.0]


def test_a_program_that_does_not_repeat_itself_is_noticed() -> None:
    programs = iter([small_program(seed) for seed in range(40)])
    with pytest.raises(ScheduleDivergedError):
        explore(lambda s: run_program(next(programs), s), classes_max=100)


@pytest.mark.parametrize("name", ["zero-draft-after-high-accept", "align-boundary-and-prefix-hit"])
def test_a_correct_engine_run_of_12_steps_is_one_class(name: str) -> None:
    steps = []

    def run(stepper: Stepper) -> bool:
        finished = checker(name).execute(stepper=stepper)
        steps.append(finished.result.steps if finished.result else 0)
        return not checker(name).judge(finished).findings

    found = explore(run, classes_max=50)
    assert found.is_complete
    assert found.progress.classes == 1
    assert found.results == (True,)
    assert steps[0] >= 12


def test_a_faulty_engine_has_classes_that_pass_and_classes_that_fail() -> None:
    name, fault = "prefill-to-decode-swap", find_fault("accepted-double-remap")

    def run(stepper: Stepper) -> bool:
        finished = checker(name).execute(stepper=stepper, fault=fault)
        return checker(name).scenario is not None and _is_right(finished.result.delivered, name)

    found = explore(run, classes_max=50)
    assert found.is_complete
    assert found.progress.classes == 3
    assert sorted(found.results) == [False, False, True]


def _is_right(delivered: dict[str, tuple[int, ...]], name: str) -> bool:
    return delivered == checker(name).reference.delivered


def test_what_an_action_makes_depends_on_all_that_it_reads() -> None:
    """Another value in a cell is another outcome: no two are taken for each other."""
    recorder = Recorder(("s0",))
    recorder.issue(1, "w", 0, (Access("b", 1, 3, False), Access("b", 2, 1, True)))
    program = from_events(recorder)
    made = set()
    for cell in ((1, 0), (1, 1)):
        for value in range(500):
            state = State(program)
            state.cells[cell] = value
            state.take(state.enabled()[0])
            made.add((state.cells[2, 0], cell if value else None))
    assert len({number for number, _ in made}) == len(made) == 999
