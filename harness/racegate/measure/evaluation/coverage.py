"""Coverage: which features, and which pairs of them, the generated scenarios reach."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from racegate.check.checker import Checker
from racegate.check.expected import CheckError
from racegate.explore.features.table import FeatureTable, FeatureTotals, features_in
from racegate.explore.generate import generate, seeded
from racegate.history.finding import Verdict
from racegate.jobs.environment import environment
from racegate.jobs.gather import run_all
from racegate.jobs.pools.pool import Task, TaskWorker

COVERAGE_SCHEMA = "racegate.features/1"


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


class SeenScenario(msgspec.Struct, frozen=True):
    """One generated scenario: what it reached, None if it did not end; and what went wrong."""

    features: frozenset[str] | None
    is_reseeded: bool = False
    unproved: UnprovedScenario | None = None


def _seen(seed: int, index: int) -> SeenScenario:
    """Runs a generated scenario of a seed eagerly, judged by all oracles."""
    scenario = generate(seeded(seed, index), name=_name(seed, index))
    try:
        checker = Checker(scenario)
    except CheckError as error:
        return SeenScenario(None, unproved=_unproved(index, Verdict.INCONCLUSIVE, str(error)))
    run = checker.execute()
    result = checker.judge(run)
    reasons = [*(finding.message for finding in result.findings), *result.unmet]
    is_proved = result.verdict is Verdict.PROVED
    return SeenScenario(
        features=None if run.result is None else features_in(checker.scenario, run),
        is_reseeded=checker.scenario.model.seed != scenario.model.seed,
        unproved=None if is_proved else _unproved(index, result.verdict, *reasons[:1]),
    )


def _name(seed: int, index: int) -> str:
    return f"generated-{seed}-{index}"


def _unproved(index: int, verdict: Verdict, message: str = "") -> UnprovedScenario:
    return UnprovedScenario(index=index, verdict=verdict, message=message)


def make_worker(seed: int, number: int) -> TaskWorker[int, SeenScenario]:
    """In a worker process; every worker is like the other."""
    return TaskWorker(partial(_seen, seed))


def measure_coverage(
    seed: int,
    count: int,
    *,
    workers: int = 1,
    on_scenario: Callable[[str], None] = lambda name: None,
) -> Coverage:
    """What the first scenarios of a seed reach. About 0.13 s of a core each."""
    made_with = environment()
    tasks = (Task(name=_name(seed, index), content=index) for index in range(count))
    seen, _ = run_all(partial(make_worker, seed), tasks, workers=workers, on_done=on_scenario)
    counter = FeatureTotals()
    for one in seen:
        if one.features is not None:
            counter.add(one.features)
    return Coverage(
        schema=COVERAGE_SCHEMA,
        environment=made_with,
        seed=seed,
        scenarios=count,
        reseeded=sum(one.is_reseeded for one in seen),
        not_proved=tuple(one.unproved for one in seen if one.unproved is not None),
        table=counter.table(),
    )
