"""Coverage: which features, and which pairs of them, the generated scenarios reach."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import combinations

import msgspec

from racegate.check.checker import Checker
from racegate.check.expected import CheckError
from racegate.explore.features.catalogue import FEATURES, IMPOSSIBLE, clashing_setting, features_of
from racegate.explore.features.facts import facts_of
from racegate.explore.features.table import (
    POSSIBLE,
    FeatureTable,
    FeatureTotals,
    Pair,
    missing_pairs,
)
from racegate.explore.generate import generate, seeded
from racegate.history.finding import Verdict
from racegate.jobs.environment import environment

COVERAGE_SCHEMA = "racegate.features/1"
RARE = 3


class UnprovedScenario(msgspec.Struct, frozen=True, kw_only=True):
    """A generated scenario that is not PROVED, though no fault is seeded: something is wrong.

    index: of the scenario; message: the first reason
    """

    index: int
    verdict: Verdict
    message: str


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """What the first scenarios of a seed reach, in one eager run each, without fault.

    reseeded: float scenarios that took another model seed, for a decision within the tolerance
    not_proved: those that are not PROVED; table: features and pairs of features
    """

    schema: str
    environment: dict[str, str]
    seed: int
    scenarios: int
    reseeded: int
    not_proved: tuple[UnprovedScenario, ...]
    table: FeatureTable


def measure_coverage(seed: int, count: int, *, on_scenario: Callable[[int], None]) -> Coverage:
    """One eager run of each scenario, judged by all oracles. About 0.13 s of a core each."""
    made_with = environment()
    counter = FeatureTotals()
    reseeded = 0
    not_proved = []
    for index in range(count):
        on_scenario(index)
        scenario = generate(seeded(seed, index), name=f"generated-{seed}-{index}")
        try:
            checker = Checker(scenario)
        except CheckError as error:
            not_proved.append(
                UnprovedScenario(index=index, verdict=Verdict.INCONCLUSIVE, message=str(error))
            )
            continue
        reseeded += checker.scenario.model.seed != scenario.model.seed
        run = checker.execute()
        result = checker.judge(run)
        if result.verdict is not Verdict.PROVED:
            reasons = [*(finding.message for finding in result.findings), *result.unmet]
            not_proved.append(
                UnprovedScenario(
                    index=index, verdict=result.verdict, message="; ".join(reasons[:1])
                )
            )
        if run.result is not None:
            counter.add(features_of(facts_of(checker.scenario, run)))
    return Coverage(
        schema=COVERAGE_SCHEMA,
        environment=made_with,
        seed=seed,
        scenarios=count,
        reseeded=reseeded,
        not_proved=tuple(not_proved),
        table=counter.table(),
    )


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
