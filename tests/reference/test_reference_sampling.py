"""Drawing follows the distribution, and verification is rejection sampling."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reference_literal as literal
from racegate_reference.sampling import (
    draw_against,
    draw_token,
    greedy,
    number_at,
    token_of,
    verify,
    weights_against,
    weights_of,
)

WEIGHTS = st.lists(st.integers(0, 9), min_size=2, max_size=6).filter(any)


def test_number_at_is_the_literal_one() -> None:
    expected = literal.mix((literal.mix(7) + 5 * 0x9E3779B9) % 2**32)
    assert number_at(7, 5) == expected


@pytest.mark.parametrize("dtype", [np.uint32, np.float64])
def test_greedy_takes_the_first_of_the_highest(dtype: type) -> None:
    assert greedy(np.array([1, 7, 3, 7], dtype=dtype)).token == 1
    draw = draw_token(np.array([1, 7, 3, 5], dtype=dtype), number=2**32 - 1, temperature=0.0)
    assert draw.token == 1
    assert draw.margin == (2.0 if dtype is np.float64 else math.inf)


def test_exact_logits_are_unsigned() -> None:
    assert greedy(np.array([0x7FFFFFFF, 0x80000000], dtype=np.uint32)).token == 1


def test_weights_halve_with_every_step_below_the_highest() -> None:
    # At temperature 1/256 a step is 8 units of the logit's upper half.
    high = np.array([1000, 999, 992, 984, 984 - 8 * 14, 984 - 8 * 15, 0], dtype=np.uint32)
    weights = weights_of(high << 16, 1 / 256)
    assert weights.tolist() == [65536, 65536, 32768, 16384, 1, 0, 0]
    # Too low a temperature counts as 1/256; a higher one makes the steps longer.
    assert weights_of(high << 16, 1e-9).tolist() == weights.tolist()
    assert weights_of(high << 16, 0.5).tolist()[:4] == [65536] * 4


@given(WEIGHTS)
@settings(max_examples=40)
def test_each_token_is_drawn_by_its_weight(weights: list[int]) -> None:
    counts = Counter(token_of(np.array(weights), r) for r in range(sum(weights)))
    assert [counts[token] for token in range(len(weights))] == weights


@given(WEIGHTS, st.data())
@settings(max_examples=40)
def test_verification_is_rejection_sampling(weights: list[int], data: st.DataObject) -> None:
    x = data.draw(st.integers(0, len(weights) - 1))
    total = sum(weights)
    accepted, replaced = 0, Counter[int]()
    for r in range(total):
        emitted = verify(
            (x,), lambda place, r=r: token_of(np.array(weights), r) if place == 0 else 0
        )
        if len(emitted) == 2:
            accepted += 1
        else:
            replaced[emitted[0]] += 1
    # A point mass at x is accepted with min(1, p(x) / 1), and max(0, p - q) is p without x.
    assert Fraction(accepted, total) == Fraction(weights[x], total)
    without = [0 if token == x else weight for token, weight in enumerate(weights)]
    assert [replaced[token] for token in range(len(weights))] == without


def test_a_number_draws_by_weight_through_the_logits() -> None:
    logits = np.array([1000, 992, 984, 984], dtype=np.uint32) << 16
    total = 65536 + 32768 + 2 * 16384
    counts = Counter(
        draw_token(logits, number=u, temperature=1 / 256).token
        for u in range(0, 2**32, 2**32 // 1024)
    )
    expected = [65536, 32768, 16384, 16384]
    assert [counts[token] for token in range(4)] == [1024 * w // total for w in expected]


def test_float_draw_inverts_the_distribution() -> None:
    logits = np.log(np.array([0.5, 0.25, 0.25]))
    halves = [(0.0, 0), (0.49, 0), (0.51, 1), (0.74, 1), (0.76, 2), (1 - 2**-32, 2)]
    for uniform, token in halves:
        draw = draw_token(logits, number=int(uniform * 2**32), temperature=1.0)
        assert draw.token == token
        assert draw.margin == pytest.approx(min(abs(uniform - 0.5), abs(uniform - 0.75)), abs=1e-9)


@given(st.permutations(range(5)), st.integers(0, 2**32 - 1))
@settings(max_examples=30)
def test_temperature_towards_zero_is_greedy(order: list[int], number: int) -> None:
    # In exact, logits 17 steps apart leave no weight to any but the highest.
    exact = np.array(order, dtype=np.uint32) * (8 * 17) << 16
    for logits in (exact, np.array(order, dtype=np.float64)):
        draw = draw_token(logits, number=number, temperature=1e-3)
        assert draw.token == greedy(logits).token == order.index(4)


def test_verification_emits_up_to_the_first_difference() -> None:
    truth = (4, 5, 6, 7)
    for drafts, emitted in (
        ((), (4,)),
        ((4,), (4, 5)),
        ((5,), (4,)),
        ((4, 5, 6), truth),
        ((4, 0, 6), (4, 5)),
    ):
        asked: list[int] = []

        def draw(place: int, asked: list[int] = asked) -> int:
            asked.append(place)
            return truth[place]

        assert verify(drafts, draw) == emitted
        assert asked == list(range(len(emitted)))


@given(WEIGHTS, st.lists(st.integers(0, 16), min_size=2, max_size=6).filter(any))
@settings(max_examples=60)
def test_a_drawn_draft_and_what_is_recovered_are_distributed_as_the_target(
    own: list[int], theirs: list[int]
) -> None:
    """Over all drafts, by their weights: exactly the target's distribution."""
    size = min(len(own), len(theirs))
    own, theirs = [*own[:size]], [*theirs[:size]]
    own[0] += 1
    theirs[-1] += 1
    a, b = [w * sum(theirs) for w in own], [q * sum(own) for q in theirs]
    shares = [Fraction(0)] * size
    for draft, weight in enumerate(theirs):
        mixed = [int(m) for m in weights_against(a, b, draft)] if weight else [0] * size
        accepted = Fraction(mixed[draft], sum(mixed) or 1)
        assert not weight or accepted == min(Fraction(1), Fraction(a[draft], b[draft]))
        for token in range(size):
            shares[token] += Fraction(weight, sum(theirs)) * Fraction(mixed[token], sum(mixed) or 1)
    assert shares == [Fraction(w, sum(own)) for w in own]


@given(st.integers(0, 2**32 - 1), st.integers(0, 4))
@settings(max_examples=60)
def test_a_point_mass_leaves_every_token_as_it_is(number: int, draft: int) -> None:
    logits = (np.array([70, 10, 64, 69, 3], dtype=np.uint32) * 700) << 16
    for weight in (0, 1, 16):
        weights = weight * (np.arange(5) == draft)
        for temperature in (0.0, 2.0, 9.0):
            drawn = draw_against(logits, draft, weights, number=number, temperature=temperature)
            assert drawn == draw_token(logits, number=number, temperature=temperature)
