"""The cheapest set of trials whose edges order all that any of them orders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from racegate.targets.program.repairs.trials import EdgeTrial, cost_of

LOOKED_AT_MAX = 20_000  # sets; beyond, the best so far is taken
KEPT_MAX = 24  # candidates that cover something no cheaper one does


def cheapest_sets(
    trials: Sequence[EdgeTrial], wanted: frozenset[str]
) -> list[tuple[EdgeTrial, ...]]:
    """Sets of trials that cover all of `wanted` that any covers, the cheapest first."""
    coverable = frozenset(name for trial in trials for name in trial.gone & wanted)
    kept = _undominated(trials, wanted)
    found = list(islice(_covers(kept, coverable, ()), LOOKED_AT_MAX))
    unique = {frozenset(map(id, one)): one for one in found}
    return sorted(unique.values(), key=cost_of)


def _undominated(trials: Sequence[EdgeTrial], wanted: frozenset[str]) -> list[EdgeTrial]:
    """By cost, without those of which a cheaper one covers as much, but for two of each: where two
    edges disturb each other, there is another.
    """
    kept: list[EdgeTrial] = []
    for trial in sorted(trials, key=lambda one: cost_of([one])):
        mine = trial.gone & wanted
        cheaper = sum(mine <= other.gone for other in kept)
        if mine and cheaper < 2 and len(kept) < KEPT_MAX:
            kept.append(trial)
    return kept


def _covers(
    trials: Sequence[EdgeTrial], open_names: frozenset[str], chosen: tuple[EdgeTrial, ...]
) -> Iterator[tuple[EdgeTrial, ...]]:
    """Every way to cover the names, by the one that the fewest trials cover."""
    if not open_names:
        yield chosen
        return
    hardest = min(sorted(open_names), key=lambda name: sum(name in one.gone for one in trials))
    for trial in trials:
        if hardest in trial.gone:
            yield from _covers(trials, open_names - trial.gone, (*chosen, trial))
