"""Figures: how many more targets an approach finds than uniform generation, and how much sooner.

How often a target is found is a rate: finds per schedule, where a seed that does not find it counts
with all its schedules. So nothing is lost where budgets end, and no median has to be guessed. What
is said of an approach is a geometric mean over targets; its interval comes from the bootstrap,
which draws seeds anew (Efron, 1979), those of both approaches together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from racegate.measure.evaluation.learning.results import (
    Approach,
    ApproachRow,
    Hunt,
    Interval,
    TargetRow,
)

DRAWS = 4000
# A target that one approach never found: as if it had been half found.
HALF = 0.5
SLOWEST = 0.1


def slowest(hunts: Iterable[Hunt]) -> tuple[list[str], list[str]]:
    """Targets with the lowest rates, a tenth of those that were found; and those that were not."""
    finds: dict[str, int] = defaultdict(int)
    schedules: dict[str, int] = defaultdict(int)
    for hunt in hunts:
        finds[hunt.target] += hunt.first is not None
        schedules[hunt.target] += hunt.schedules
    found = sorted(
        (name for name in finds if finds[name]),
        key=lambda name: (finds[name] / schedules[name], name),
    )
    slow = found[: max(1, round(SLOWEST * len(found)))]
    return slow, sorted(name for name in finds if not finds[name])


class _Table(NamedTuple):
    """By target and seed. finds, schedules: an array of uniform generation, and one of the other"""

    finds: tuple[np.ndarray, np.ndarray]
    schedules: tuple[np.ndarray, np.ndarray]


def compared(
    hunts: Sequence[Hunt], approach: Approach, targets: Sequence[str]
) -> ApproachRow | None:
    """An approach beside uniform generation, over the seeds that both have for all targets."""
    by_place = {(hunt.approach, hunt.seed, hunt.target): hunt for hunt in hunts}
    seeds = [
        seed
        for seed in sorted({hunt.seed for hunt in hunts})
        if all(
            (one, seed, name) in by_place
            for one in (Approach.UNIFORM, approach)
            for name in targets
        )
    ]
    if not seeds or not targets:
        return None
    whole = _table(by_place, approach, targets, seeds)
    is_found = (whole.finds[0] | whole.finds[1]).any(axis=1)
    if not is_found.any():
        return None
    table = _Table(
        finds=(whole.finds[0][is_found], whole.finds[1][is_found]),
        schedules=(whole.schedules[0][is_found], whole.schedules[1][is_found]),
    )
    random = np.random.default_rng(0)
    drawn = random.integers(len(seeds), size=(DRAWS, len(seeds)))
    every = np.arange(len(seeds))[None]
    uniform, found = (one.sum(axis=0).mean() for one in table.finds)
    return ApproachRow(
        approach=approach,
        seeds=len(seeds),
        targets=int(is_found.sum()),
        found=float(found),
        uniform=float(uniform),
        more=_interval(_more(table, every), _more(table, drawn)),
        sooner=_interval(_sooner(table, every), _sooner(table, drawn)),
    )


def _table(
    by_place: dict[tuple[Approach, int, str], Hunt],
    approach: Approach,
    targets: Sequence[str],
    seeds: Sequence[int],
) -> _Table:
    rows = {
        one: [[by_place[one, seed, name] for seed in seeds] for name in targets]
        for one in (Approach.UNIFORM, approach)
    }
    finds = [np.array([[h.first is not None for h in row] for row in rows[one]]) for one in rows]
    schedules = [np.array([[hunt.schedules for hunt in row] for row in rows[one]]) for one in rows]
    return _Table((finds[0], finds[-1]), (schedules[0], schedules[-1]))


def _more(table: _Table, drawn: np.ndarray) -> np.ndarray:
    """Targets that the approach finds in a seed and uniform generation does not, for each draw."""
    difference = table.finds[1].sum(axis=0) - table.finds[0].sum(axis=0).astype(float)
    return np.asarray(difference[drawn].mean(axis=1))


def _sooner(table: _Table, drawn: np.ndarray) -> np.ndarray:
    """The geometric mean of the ratios of rates, for each draw of seeds. drawn: [draws, seeds]"""
    rates = []
    for finds, schedules in zip(table.finds, table.schedules, strict=True):
        found = np.maximum(finds[:, drawn].sum(axis=2), HALF)
        rates.append(np.log(found / schedules[:, drawn].sum(axis=2)))
    return np.asarray(np.exp((rates[1] - rates[0]).mean(axis=0)))


def _interval(value: np.ndarray, draws: np.ndarray) -> Interval:
    low, high = np.quantile(draws, [0.025, 0.975])
    return Interval(value=float(value[0]), low=float(low), high=float(high))


def rows_of(hunts: Sequence[Hunt], targets: Sequence[str]) -> tuple[TargetRow, ...]:
    """Each target, approach by approach."""
    rows = []
    for name in targets:
        found: dict[str, int] = defaultdict(int)
        schedules: dict[str, int] = defaultdict(int)
        for hunt in hunts:
            if hunt.target == name:
                found[hunt.approach] += hunt.first is not None
                schedules[hunt.approach] += hunt.schedules
        each = {
            approach: schedules[approach] / found[approach] if found[approach] else None
            for approach in schedules
        }
        rows.append(TargetRow(target=name, found=dict(found), schedules=each))
    return tuple(rows)
