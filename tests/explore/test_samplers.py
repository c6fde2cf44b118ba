"""Samplers are seeded, complete legal runs, and sample as they claim."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from all_outcomes import all_outcomes
from racegate.device.stepping import Transition
from racegate.explore.abstract import random_program, run_program
from racegate.explore.ladder import Noting
from racegate.explore.pairs import interesting_steps
from racegate.explore.samplers.pct import PctStepper
from racegate.explore.samplers.portfolio import SamplerKind, make_sampler
from racegate.explore.samplers.pos import PosStepper
from racegate.explore.samplers.random_walk import RandomStepper
from racegate.explore.samplers.surw import SurwStepper
from racegate.history.trace import Access
from support import checker

PROGRAM = random_program(Random(11), streams=2, steps=6, storages=1, waits=0.1)


@pytest.mark.parametrize("kind", SamplerKind)
def test_a_sampler_stays_inside_the_legal_outcomes_and_reaches_them(kind: SamplerKind) -> None:
    outcomes, _ = all_outcomes(PROGRAM)
    noting = Noting(RandomStepper(0))
    run_program(PROGRAM, noting)
    interesting = interesting_steps(noting.steps)
    seen = {
        run_program(PROGRAM, make_sampler(kind, seed, steps=6, interesting=interesting))
        for seed in range(400)
    }
    assert seen <= outcomes
    assert len(seen) > len(outcomes) / 2


@pytest.mark.parametrize("kind", SamplerKind)
def test_the_same_seed_is_the_same_schedule(kind: SamplerKind) -> None:
    def steps(seed: int) -> list[str]:
        noting = Noting(make_sampler(kind, seed, steps=800, interesting=frozenset()))
        checker("steady-mixed-accepts").execute(stepper=noting)
        return [step.label for step in noting.steps]

    assert steps(5) == steps(5)
    assert steps(5) != steps(6)


@pytest.mark.parametrize("kind", SamplerKind)
def test_the_correct_engine_does_not_mind(kind: SamplerKind) -> None:
    for name in ("steady-mixed-accepts", "three-row-cycle"):
        for seed in range(3):
            stepper = make_sampler(kind, seed, steps=800, interesting=frozenset())
            run = checker(name).execute(stepper=stepper)
            assert checker(name).judge(run).findings == ()


def two_lanes() -> tuple:
    """Two streams of three steps each that all conflict: 20 interleavings."""
    from racegate.device.recorder import Recorder
    from racegate.explore.abstract import from_events
    from racegate.history.trace import Access

    recorder = Recorder(("s0", "s1"))
    for lane in (1, 2):
        for _ in range(3):
            recorder.issue(lane, "w", 0, (Access("b", 1, 1, True), Access("b", 1, 1, False)))
    return from_events(recorder), frozenset((lane, n) for lane in (1, 2) for n in (1, 2, 3))


def test_surw_is_uniform_over_interleavings_of_interesting_steps() -> None:
    program, interesting = two_lanes()
    counts = Counter(
        run_program(program, SurwStepper(seed, interesting=interesting)) for seed in range(8_000)
    )
    assert len(counts) == 20
    expected = 8_000 / 20
    chi_square = sum((count - expected) ** 2 / expected for count in counts.values())
    assert chi_square < 43.8  # 19 degrees of freedom, p = 0.001


def test_a_plain_random_walk_is_not() -> None:
    program, _ = two_lanes()
    counts = Counter(run_program(program, RandomStepper(seed)) for seed in range(8_000))
    expected = 8_000 / 20
    assert sum((count - expected) ** 2 / expected for count in counts.values()) > 100


def test_pct_hits_a_depth_one_order_at_least_as_often_as_its_bound() -> None:
    # With depth 1 the order of two conflicting steps depends on the two streams' priorities alone.
    program, _ = two_lanes()
    firsts = Counter()
    for seed in range(300):
        noting = Noting(PctStepper(seed, depth=1, steps=6))
        run_program(program, noting)
        firsts[noting.steps[0].process] += 1
    assert min(firsts[1], firsts[2]) >= 300 / 3


def test_pos_draws_again_for_steps_in_conflict() -> None:
    program, _ = two_lanes()
    assert len({run_program(program, PosStepper(seed)) for seed in range(600)}) == 20


def test_steps_are_interesting_by_their_own_process_and_place_in_it() -> None:
    """One on each side of a pair that nothing orders, and no other step of the run."""

    def step(process: int, ordinal: int, *, storage: int) -> Transition:
        clock = [0, 0, 0]
        clock[process] = ordinal
        access = Access(storage=storage, buffer="b", rows=1, is_write=True)
        return Transition(
            process=process,
            ordinal=ordinal,
            label=f"{process}.{ordinal}",
            issued=0,
            accesses=(access,),
            clock=tuple(clock),
        )

    steps = [step(1, 1, storage=7), step(0, 1, storage=1), step(2, 1, storage=8)]
    steps += [step(1, 2, storage=1), step(2, 2, storage=9)]
    assert interesting_steps(steps) == {(0, 1), (1, 2)}
