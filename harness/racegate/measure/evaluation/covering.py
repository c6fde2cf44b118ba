"""Covering arrays: few scripts in which every possible pair of features occurs, float and exact
apart, beside those that other scripts have already.

Rows are chosen one by one, as in AETG (Cohen, Dalal, Fredman and Patton, IEEE TSE 1997): the drawn
scenario with the most missing pairs for its operations, led on by crossing it with scenarios that
have what it lacks. Then each row is made as small as the pairs allow that only it has.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from random import Random

import msgspec

from racegate.check.checker import Checker
from racegate.check.expected import CheckError
from racegate.explore.crossing import crossed, fitted, in_numerics
from racegate.explore.features.apart import pairs_of
from racegate.explore.features.table import POSSIBLE, Pair, features_in
from racegate.explore.generate import generate, seeded
from racegate.explore.shrink import Case, shrink
from racegate.history.schedule import EAGER
from racegate.history.trace import OpRecord
from racegate.scenario.settings import Numerics
from racegate.scenario.spec import OwnScenario, ScenarioError

# What a scenario costs beside its operations: the engine is built, graphs are captured.
OPS_FIXED = 150
LARGE_STEPS = 9  # of a row, at most, before one makes it smaller
STEPS_MAX = 200  # as in a script that does not say
POSSIBLE_PAIRS = frozenset(POSSIBLE)


class CoverSpec(msgspec.Struct, frozen=True, kw_only=True):
    """How an array is made. start: scenarios to begin with; draws: so many more are drawn
    tries: crossings for each row; shrinks: candidate runs for each row, to make it smaller
    """

    start: tuple[OwnScenario, ...] = ()
    seed: int = 0
    draws: int = 300
    tries: int = 150
    shrinks: int = 200


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CoverRow:
    """A scenario with what an eager run of it had. ops: operations of that run; counters: the
    engine's
    """

    scenario: OwnScenario
    features: frozenset[str]
    pairs: frozenset[Pair]
    ops: int
    counters: Mapping[str, int]


def row_of(scenario: OwnScenario) -> CoverRow | None:
    """A scenario that has been run; None if it cannot be judged, does not end, delivers nothing or
    has a pair that is declared impossible.
    """
    try:
        checker = Checker(scenario)
    except CheckError:
        return None
    run = checker.execute()
    if run.result is None or not any(run.result.delivered.values()):
        return None
    features = features_in(checker.scenario, run)
    pairs = pairs_of(features)
    if not pairs <= POSSIBLE_PAIRS:
        return None
    ops = sum(isinstance(event, OpRecord) for event in run.trace.events)
    # With the model seed that was used, so that a script needs no other.
    return CoverRow(
        scenario=checker.scenario,
        features=features,
        pairs=pairs,
        ops=ops,
        counters=run.result.counters,
    )


def cover(
    missing: frozenset[Pair],
    numerics: Numerics,
    spec: CoverSpec,
    *,
    on_row: Callable[[CoverRow, int], None] = lambda row, left: None,
) -> list[CoverRow]:
    """Rows with all pairs that are missing, as far as draws and crossings reach them, minimised.
    on_row: is told each row as it is chosen, and how many pairs are left
    """
    pool = _Pool(spec, numerics)
    rows: list[CoverRow] = []
    while missing:
        row = pool.best(missing)
        if not row.pairs & missing:
            break
        rows.append(row)
        missing -= row.pairs
        on_row(row, len(missing))
    return rows


class _Pool:
    """Scenarios that were run, and by feature those that have it."""

    def __init__(self, spec: CoverSpec, numerics: Numerics) -> None:
        self._spec = spec
        self._random = Random(f"{spec.seed}/{numerics}")
        self._rows: list[CoverRow] = []
        self._holders: dict[str, list[CoverRow]] = defaultdict(list)
        for scenario in spec.start:
            if scenario.model.numerics is numerics:
                self._add(scenario)
        for index in range(spec.draws):
            drawn = generate(seeded(spec.seed, index), name=f"generated-{spec.seed}-{index}")
            self._add(in_numerics(msgspec.structs.replace(drawn, steps_max=STEPS_MAX), numerics))

    def best(self, missing: frozenset[Pair]) -> CoverRow:
        """The scenario with the most missing pairs for its operations, after it was led on."""
        best = max(self._rows, key=lambda row: worth(row, missing))
        for _ in range(self._spec.tries):
            child = self._child(best, sorted(missing - best.pairs))
            if child is not None and worth(child, missing) > worth(best, missing):
                best = child
        return best

    def _child(self, row: CoverRow, wanted: Sequence[Pair]) -> CoverRow | None:
        """A scenario crossed with one that has what it lacks of a wanted pair."""
        if not wanted:
            return None
        lacking = [name for name in self._random.choice(wanted) if name not in row.features]
        donors = self._holders[lacking[0]] if lacking else self._rows
        donor = self._random.choice(donors or self._rows)
        try:
            return self._add(crossed(row.scenario, donor.scenario, self._random))
        except ScenarioError:
            return None

    def _add(self, scenario: OwnScenario) -> CoverRow | None:
        row = row_of(scenario)
        if row is not None:
            self._rows.append(row)
            for name in row.features:
                self._holders[name].append(row)
        return row


def worth(row: CoverRow, missing: frozenset[Pair]) -> float:
    """Missing pairs for each operation."""
    return len(row.pairs & missing) / (row.ops + OPS_FIXED)


def minimised(rows: Sequence[CoverRow], missing: frozenset[Pair], runs_max: int) -> list[CoverRow]:
    """The rows without those that the others make needless, each without what it is not needed for.
    missing: the pairs that they have to have together
    """
    kept = sorted(rows, key=lambda row: row.ops, reverse=True)
    for row in tuple(kept):
        if not own_pairs(row, kept, missing):
            kept = [other for other in kept if other is not row]
    for place, row in enumerate(kept):
        kept[place] = _shrunk(row, own_pairs(row, kept, missing), runs_max)
    return [row for row in kept if own_pairs(row, kept, missing)]


def own_pairs(row: CoverRow, rows: Iterable[CoverRow], missing: frozenset[Pair]) -> frozenset[Pair]:
    """The pairs that no other row has."""
    others = (other.pairs for other in rows if other is not row)
    return (row.pairs & missing).difference(*others)


def _shrunk(row: CoverRow, needed: frozenset[Pair], runs_max: int) -> CoverRow:
    """The row without most of what it is not needed for: large steps, then those of shrinking."""
    best = row

    def is_enough(scenario: OwnScenario) -> bool:
        nonlocal best
        if scenario.steps_max != row.scenario.steps_max:
            return False  # a limit that nothing comes near makes no run shorter
        found = row_of(scenario)
        if found is None or not needed <= found.pairs or found.ops >= best.ops:
            return False
        best = found
        return True

    left = runs_max
    while left > 0 and any(is_enough(one) for one in islice(_much_smaller(best.scenario), left)):
        left -= LARGE_STEPS
    case = Case(scenario=best.scenario, schedule=EAGER)
    shrink(case, lambda one: is_enough(one.scenario), runs_max=max(left, 0))
    return best


def _much_smaller(scenario: OwnScenario) -> Iterator[OwnScenario]:
    """Possible ones with half of the requests or of their tokens, a layer less, or no events."""
    requests, layers, half = scenario.requests, scenario.model.layers, len(scenario.requests) // 2
    changes: list[dict[str, object]] = [
        {"requests": part} for part in (requests[:half], requests[half:], requests[1:-1]) if part
    ]
    changes += [{"events": ()}, {"events": scenario.events[::2]}]
    halved = (msgspec.structs.replace(one, max_tokens=-(-one.max_tokens // 2)) for one in requests)
    changes += [{"requests": tuple(halved)}]
    for place in range(len(layers) if len(layers) > 1 else 0):
        model = msgspec.structs.replace(
            scenario.model, layers=(*layers[:place], *layers[place + 1 :])
        )
        changes += [{"model": model}]
    for change in changes:
        smaller = msgspec.structs.replace(scenario, **change)
        try:
            yield fitted(smaller)
        except ScenarioError:
            continue
