"""The table: in how many runs each feature occurred, and each pair of features."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations

import msgspec
import numpy as np

from racegate.explore.features.catalogue import FEATURES, features_of
from racegate.explore.features.facts import facts_of
from racegate.explore.features.possible import why_impossible
from racegate.history.run import Run
from racegate.scenario.spec import OwnScenario

Pair = tuple[str, str]

NAMES = tuple(feature.name for feature in FEATURES)
PLACE = {name: place for place, name in enumerate(NAMES)}
POSSIBLE: tuple[Pair, ...] = tuple(
    (first.name, second.name)
    for first, second in combinations(FEATURES, 2)
    if why_impossible(first, second) is None
)


def features_in(scenario: OwnScenario, run: Run) -> frozenset[str]:
    """The features of a run without fault; none if it did not come to its end. scenario: as it ran,
    with the model seed that was used
    """
    return frozenset() if run.result is None else features_of(facts_of(scenario, run))


class FeatureTable(msgspec.Struct, frozen=True, kw_only=True):
    """Features and pairs of features of many runs.

    runs: looked at; features: names, in the catalogue's order
    together: by feature, in how many runs it occurred, and then with each feature behind it
    """

    runs: int
    features: tuple[str, ...]
    together: tuple[tuple[int, ...], ...]

    def count(self, first: str, second: str) -> int:
        """In how many runs two features occurred; one, if it is the same name twice. In none, if
        the table is older than a feature.
        """
        if first not in self.features or second not in self.features:
            return 0
        low, high = sorted((self.features.index(first), self.features.index(second)))
        return self.together[low][high - low]

    def runs_with(self, name: str) -> int:
        """In how many runs a feature occurred."""
        return self.count(name, name)


class FeatureTotals:
    """Adds up runs, and tables of runs."""

    def __init__(self) -> None:
        self._runs = 0
        self._together = np.zeros((len(NAMES), len(NAMES)), np.int64)

    def add(self, names: Iterable[str]) -> None:
        """One run with these features."""
        places = [PLACE[name] for name in names]
        self._together[np.ix_(places, places)] += 1
        self._runs += 1

    def add_table(self, table: FeatureTable) -> None:
        """The runs of a table. Raises ValueError if it is of other features."""
        if table.features != NAMES:
            raise ValueError("a table of other features than this version's cannot be added to")
        self._runs += table.runs
        for place, counts in enumerate(table.together):
            row = np.array(counts, np.int64)
            self._together[place, place:] += row
            self._together[place + 1 :, place] += row[1:]

    def table(self) -> FeatureTable:
        """All runs so far."""
        rows = (self._together[place, place:].tolist() for place in range(len(NAMES)))
        return FeatureTable(
            runs=self._runs, features=NAMES, together=tuple(tuple(row) for row in rows)
        )


def missing_pairs(table: FeatureTable) -> list[Pair]:
    """Pairs that can occur and did not."""
    return [pair for pair in POSSIBLE if not table.count(*pair)]


def wrong_pairs(table: FeatureTable) -> list[Pair]:
    """Pairs that are declared impossible and occurred."""
    return [pair for pair in _impossible() if table.count(*pair)]


def _impossible() -> Iterator[Pair]:
    possible = set(POSSIBLE)
    return (pair for pair in combinations(NAMES, 2) if pair not in possible)
