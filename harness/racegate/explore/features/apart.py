"""Pairs of features, float and exact apart: that a pair occurred in one of the two says nothing of
the other, because kernels, tolerances and weights differ.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

import msgspec

from racegate.explore.features.table import PLACE, POSSIBLE, Pair
from racegate.scenario.settings import Numerics

JUDGED = tuple(numerics for numerics in Numerics if numerics.is_judged)


def numerics_feature(numerics: Numerics) -> str:
    """The name of the feature that a scenario with these numerics has."""
    return f"numerics = {numerics}"


POSSIBLE_APART: dict[Numerics, frozenset[Pair]] = {
    numerics: frozenset(
        pair
        for pair in POSSIBLE
        if not any(numerics_feature(other) in pair for other in JUDGED if other is not numerics)
    )
    for numerics in JUDGED
}


class PairCoverage(msgspec.Struct, frozen=True, kw_only=True):
    """What runs with one kind of numerics covered. numerics: that kind; possible: pairs that they
    can have; covered: those that at least one had
    """

    numerics: Numerics
    possible: int
    covered: int


def pairs_of(features: Iterable[str]) -> frozenset[Pair]:
    """All pairs of the features of one run, in the catalogue's order."""
    return frozenset(combinations(sorted(features, key=PLACE.__getitem__), 2))


def missing_apart(runs: Iterable[frozenset[str]]) -> dict[Numerics, frozenset[Pair]]:
    """Possible pairs that none of these runs had, by numerics. runs: the features of each"""
    missing = {numerics: set(pairs) for numerics, pairs in POSSIBLE_APART.items()}
    for features in runs:
        for numerics, left in missing.items():
            if numerics_feature(numerics) in features:
                left -= pairs_of(features)
    return {numerics: frozenset(left) for numerics, left in missing.items()}


def covered_apart(runs: Iterable[frozenset[str]]) -> tuple[PairCoverage, ...]:
    """How many pairs these runs had."""
    return tuple(
        PairCoverage(
            numerics=numerics,
            possible=len(POSSIBLE_APART[numerics]),
            covered=len(POSSIBLE_APART[numerics]) - len(left),
        )
        for numerics, left in missing_apart(runs).items()
    )
