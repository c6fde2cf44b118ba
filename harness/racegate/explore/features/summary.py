"""What a table of features comes to: feature by feature, and which pairs are not in it."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import msgspec

from racegate.explore.features.catalogue import FEATURES
from racegate.explore.features.possible import IMPOSSIBLE, clashing_setting
from racegate.explore.features.table import POSSIBLE, FeatureTable, Pair, missing_pairs

RARE = 3


class FeatureRow(msgspec.Struct, frozen=True, kw_only=True):
    """least: runs with the rarest possible pair of the feature; partner: the other one of it."""

    name: str
    why: str
    runs: int
    least: int
    partner: str


class CoverageSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What a table comes to. impossible: pairs by the setting that forbids them; declared: the
    other impossible ones, with why; rare: possible pairs in fewer than RARE runs, but in one.
    """

    runs: int
    rows: tuple[FeatureRow, ...]
    pairs: int
    possible: int
    missing: tuple[Pair, ...]
    rare: int
    impossible: dict[str, int]
    declared: dict[Pair, str]


def summarise(table: FeatureTable) -> CoverageSummary:
    """The table by feature, and what is not in it."""
    pairs = list(combinations(FEATURES, 2))
    clashes = Counter(clashing_setting(first, second) for first, second in pairs)
    return CoverageSummary(
        runs=table.runs,
        rows=_rows(table),
        pairs=len(pairs),
        possible=len(POSSIBLE),
        missing=tuple(missing_pairs(table)),
        rare=sum(0 < table.count(*pair) < RARE for pair in POSSIBLE),
        impossible={name: number for name, number in clashes.most_common() if name is not None},
        declared=dict(IMPOSSIBLE),
    )


def _rows(table: FeatureTable) -> tuple[FeatureRow, ...]:
    rarest: dict[str, tuple[int, str]] = {}
    for first, second in POSSIBLE:
        count = table.count(first, second)
        for name, partner in ((first, second), (second, first)):
            rarest[name] = min(rarest.get(name, (count, partner)), (count, partner))
    return tuple(
        FeatureRow(
            name=feature.name,
            why=feature.why,
            runs=table.runs_with(feature.name),
            least=rarest[feature.name][0],
            partner=rarest[feature.name][1],
        )
        for feature in FEATURES
    )
