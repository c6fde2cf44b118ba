"""The table: in how many runs each feature occurred, and each pair of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import combinations

import msgspec

from racegate.explore.features.catalogue import FEATURES, why_impossible

Pair = tuple[str, str]

POSSIBLE: tuple[Pair, ...] = tuple(
    (first.name, second.name)
    for first, second in combinations(FEATURES, 2)
    if why_impossible(first, second) is None
)


class FeatureTable(msgspec.Struct, frozen=True, kw_only=True):
    """runs: looked at; runs_with: feature -> runs that have it; runs_with_pair: by pair, the first
    feature of the catalogue's order first.
    """

    runs: int = 0
    runs_with: dict[str, int] = {}
    runs_with_pair: dict[str, dict[str, int]] = {}

    def count(self, pair: Pair) -> int:
        """In how many runs both features of a pair occurred."""
        return self.runs_with_pair.get(pair[0], {}).get(pair[1], 0)


def count_features(seen: Iterable[frozenset[str]]) -> FeatureTable:
    """The table of runs, from the features of each."""
    runs = 0
    single: Counter[str] = Counter()
    double: Counter[Pair] = Counter()
    for names in seen:
        runs += 1
        ordered = [feature.name for feature in FEATURES if feature.name in names]
        single.update(ordered)
        double.update(combinations(ordered, 2))
    return _table(runs, single, double)


def add_tables(tables: Iterable[FeatureTable]) -> FeatureTable:
    """The table of the runs of several."""
    runs = 0
    single: Counter[str] = Counter()
    double: Counter[Pair] = Counter()
    for table in tables:
        runs += table.runs
        single.update(table.runs_with)
        for first, others in table.runs_with_pair.items():
            double.update({(first, second): count for second, count in others.items()})
    return _table(runs, single, double)


def _table(runs: int, single: Counter[str], double: Counter[Pair]) -> FeatureTable:
    pairs: dict[str, dict[str, int]] = {}
    for (first, second), count in double.items():
        pairs.setdefault(first, {})[second] = count
    return FeatureTable(runs=runs, runs_with=dict(single), runs_with_pair=pairs)


def missing_pairs(table: FeatureTable) -> list[Pair]:
    """Pairs that can occur and did not."""
    return [pair for pair in POSSIBLE if not table.count(pair)]


def wrong_pairs(table: FeatureTable) -> list[Pair]:
    """Pairs that are declared impossible and occurred."""
    possible = set(POSSIBLE)
    return [
        (first, second)
        for first, others in table.runs_with_pair.items()
        for second, count in others.items()
        if count and (first, second) not in possible
    ]
