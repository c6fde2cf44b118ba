"""What search learns: choices that can be changed, what a run reached, and what is drawn next."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from racegate.check.checker import Checker
from racegate.explore.generate import generate, seeded
from racegate.explore.learning.behaviour import Behaviour, behaviours_of
from racegate.explore.learning.choices import Choices, crossed, drawn, mutated, replayed
from racegate.explore.learning.corpus import FRESH, HOLDERS_MAX, Corpus, Energy, TriedScenario
from racegate.scenario.validation import validate

SEEDS = st.integers(0, 1 << 30)
COMMON, RARE = ("edge", "common", "host"), ("edge", "rare", "host")


def no_more(count: int) -> int:
    raise AssertionError("every choice was recorded")


@given(SEEDS, st.integers(0, 100))
@settings(max_examples=30)
def test_a_scenario_is_what_was_chosen(seed: int, index: int) -> None:
    one = drawn(seeded(seed, index), name="x")
    assert one.scenario == generate(seeded(seed, index), name="x")
    again = drawn(replayed(one.choices, no_more), name="x")
    assert again == one


@given(SEEDS)
@settings(max_examples=60)
def test_whatever_is_changed_or_crossed_over_makes_a_valid_scenario(seed: int) -> None:
    random = Random(seed)
    first, second = (drawn(seeded(seed, index), name="x").choices for index in range(2))
    for choices in (mutated(first, random), crossed(first, second, random)):
        validate(drawn(replayed(choices, seeded(seed, 2)), name="x").scenario)


@given(SEEDS)
@settings(max_examples=30)
def test_a_change_leaves_most_choices(seed: int) -> None:
    choices = drawn(seeded(seed, 0), name="x").choices
    others = mutated(choices, Random(seed))
    assert len(others) == len(choices)
    assert sum(one != other for one, other in zip(choices, others, strict=True)) < 40


@given(SEEDS)
@settings(max_examples=30)
def test_crossed_over_it_begins_as_one_and_ends_as_the_other(seed: int) -> None:
    first, second = (drawn(seeded(seed, index), name="x").choices for index in range(2))
    child = crossed(first, second, Random(seed))
    assert len(child) == len(second)
    assert any(child == first[:cut] + second[cut:] for cut in range(1, len(first)))


def tried(*behaviours: Behaviour, index: int) -> TriedScenario:
    choices = drawn(seeded(7, index), name="x").choices
    return TriedScenario(choices=choices, behaviours=frozenset(behaviours))


def corpus_of(rounds: int, energy: Energy = Energy.RARE) -> Corpus:
    """Forty scenarios, of which the last reached what no other did."""
    corpus = Corpus(7, energy)
    found = [tried(COMMON, *([RARE] if index == 39 else []), index=index) for index in range(40)]
    for start in range(0, 40, 40 // rounds):
        corpus.learn(found[start : start + 40 // rounds])
    return corpus


def test_what_is_drawn_hangs_on_seed_index_and_what_was_learned_alone() -> None:
    one, other = corpus_of(1), corpus_of(4)
    for index in (100, 3, 57):
        assert one.draw(index, name="x") == other.draw(index, name="x")
    assert one.draw(5, name="x") != Corpus(7).draw(5, name="x")


def test_without_anything_learned_scenarios_are_those_of_a_campaign() -> None:
    assert Corpus(7).draw(5, name="x").scenario == generate(seeded(7, 5), name="x")


def parents(corpus: Corpus, draws: int = 200) -> Counter[Choices]:
    """Which of the forty shares most with each of the first scenarios drawn."""
    known = [drawn(seeded(7, index), name="x").choices for index in range(40)]
    found: Counter[Choices] = Counter()
    for index in range(1000, 1000 + draws):
        child = corpus.draw(index, name="x").choices
        if child != drawn(seeded(7, index), name="x").choices:
            found[max(known, key=lambda one: _alike(one, child))] += 1
    return found


def _alike(one: Choices, other: Choices) -> int:
    return sum(a == b for a, b in zip(one[:20], other[:20], strict=True))


def test_where_it_is_rare_the_work_goes() -> None:
    rarest = drawn(seeded(7, 39), name="x").choices
    rare, even = parents(corpus_of(1)), parents(corpus_of(1, Energy.EVEN))
    assert rare[rarest] > sum(rare.values()) / 2
    assert even[rarest] < sum(even.values()) / 2
    assert sum(rare.values()) < 200 * (1 - 0.5 / FRESH)


def test_few_scenarios_are_kept_for_a_behaviour() -> None:
    corpus = corpus_of(1, Energy.EVEN)
    assert len(parents(corpus)) <= HOLDERS_MAX + 3  # crossed over, one may look like another
    assert corpus.reached == 2


def test_a_run_reaches_pairs_edges_and_orderings() -> None:
    checker = Checker(generate(seeded(0, 1), name="x"))
    run = checker.execute()
    found = behaviours_of(checker.scenario, run)
    kinds = Counter(kind if kind in ("features", "edge") else "ordering" for kind, _, _ in found)
    assert set(kinds) == {"features", "edge", "ordering"}
    assert all("@" not in name for behaviour in found for name in behaviour)
    assert found == behaviours_of(checker.scenario, checker.execute())
