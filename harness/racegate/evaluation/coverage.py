"""Coverage: which features, and which pairs of them, the generated scenarios reach."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from racegate.check.checker import Checker
from racegate.check.expected import CheckError
from racegate.explore.features.catalogue import features_of
from racegate.explore.features.facts import facts_of
from racegate.explore.features.table import FeatureCounter, FeatureTable
from racegate.explore.generate import generate, seeded
from racegate.history.finding import Verdict

COVERAGE_SCHEMA = "racegate.features/1"


class NotProved(msgspec.Struct, frozen=True, kw_only=True):
    """A generated scenario whose eager run, without fault, is not PROVED: a defect somewhere."""

    index: int
    verdict: Verdict | None
    message: str


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """What scenarios 0 .. count - 1 of a seed reach.

    reseeded: float scenarios that took another model seed, for a decision within the tolerance
    """

    schema: str
    seed: int
    scenarios: int
    reseeded: int
    not_proved: tuple[NotProved, ...]
    table: FeatureTable


def measure_coverage(seed: int, count: int, *, on_scenario: Callable[[int], None]) -> Coverage:
    """One eager run of each scenario, judged by all oracles. About 0.13 s of a core each."""
    counter = FeatureCounter()
    reseeded = 0
    not_proved = []
    for index in range(count):
        on_scenario(index)
        scenario = generate(seeded(seed, index), name=f"generated-{seed}-{index}")
        try:
            checker = Checker(scenario)
        except CheckError as error:
            not_proved.append(NotProved(index=index, verdict=None, message=str(error)))
            continue
        reseeded += checker.scenario.model.seed != scenario.model.seed
        run = checker.execute()
        result = checker.judge(run)
        if result.verdict is not Verdict.PROVED:
            reasons = [*(finding.message for finding in result.findings), *result.unmet]
            not_proved.append(
                NotProved(index=index, verdict=result.verdict, message="; ".join(reasons[:1]))
            )
        if run.result is not None:
            counter.add(features_of(facts_of(checker.scenario, run)))
    return Coverage(
        schema=COVERAGE_SCHEMA,
        seed=seed,
        scenarios=count,
        reseeded=reseeded,
        not_proved=tuple(not_proved),
        table=counter.table(),
    )
