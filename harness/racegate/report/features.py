"""What generated scenarios reach, as a committed page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import combinations

import msgspec

from racegate.evaluation.coverage import Coverage
from racegate.explore.features.catalogue import (
    FEATURES,
    IMPOSSIBLE,
    clashing_setting,
    why_impossible,
)
from racegate.explore.features.table import POSSIBLE, FeatureTable, missing_pairs
from racegate.report.templating import render

RARE = 3


class FeatureRow(msgspec.Struct, frozen=True, kw_only=True):
    """least: runs with the rarest possible pair of the feature; partner: the other one of it."""

    name: str
    why: str
    runs: int
    least: int
    partner: str


def render_features(coverage: Coverage, *, command: str, environment: Mapping[str, str]) -> str:
    """The committed page. command: what made it."""
    table = coverage.table
    pairs = list(combinations(FEATURES, 2))
    clashes = Counter(clashing_setting(first, second) for first, second in pairs)
    clashes.pop(None)
    return render(
        "features.md.j2",
        coverage=coverage,
        command=command,
        environment=environment,
        rows=_rows(table),
        pairs=len(pairs),
        possible=len(POSSIBLE),
        impossible=[pair for pair in pairs if why_impossible(*pair)],
        missing=missing_pairs(table),
        rare=sum(0 < table.count(*pair) < RARE for pair in POSSIBLE),
        by_setting=dict(clashes.most_common()),
        declared=IMPOSSIBLE,
    )


def _rows(table: FeatureTable) -> list[FeatureRow]:
    least: dict[str, tuple[int, str]] = {}
    for first, second in POSSIBLE:
        count = table.count(first, second)
        for name, partner in ((first, second), (second, first)):
            least[name] = min(least.get(name, (count, partner)), (count, partner))
    return [
        FeatureRow(
            name=feature.name,
            why=feature.why,
            runs=table.runs_with(feature.name),
            least=least[feature.name][0],
            partner=least[feature.name][1],
        )
        for feature in FEATURES
    ]
