"""Rows of a covering array as scripts: each has a name, what it must exercise, and a comment that
says for which pairs of features it is there.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, count
from textwrap import wrap

import msgspec

from racegate.check.checker import Checkers
from racegate.explore.features.apart import JUDGED, PairCoverage, covered_apart, missing_apart
from racegate.explore.features.table import PLACE, Pair, features_in
from racegate.history.outcome import SCHEMA
from racegate.measure.evaluation.covering import (
    CoverRow,
    CoverSpec,
    cover,
    minimised,
    own_pairs,
)
from racegate.scenario.expect import Expect
from racegate.scenario.spec import OwnScenario
from racegate.scenario.writing import toml_of

GROUPS_SHOWN_MAX = 10
WIDTH_MAX = 118
_LIST = re.compile(r"\[\n([^\[\]{}]*?),?\n\s*\]")


class CoverObject(msgspec.Struct, frozen=True, kw_only=True):
    """What the scripts of a folder cover. scripts: how many there are; pairs: covered, by numerics
    missing: possible pairs that no script has, by numerics; written: names of new scripts
    """

    schema: str
    scripts: int
    pairs: tuple[PairCoverage, ...]
    missing: dict[str, tuple[tuple[str, ...], ...]]
    written: tuple[str, ...] = ()


def covered_by(
    scripts: Iterable[OwnScenario], on_script: Callable[[str], None] = lambda name: None
) -> CoverObject:
    """What scripts cover, in an eager run of each. Raises CheckError."""
    checkers = Checkers()
    found = []
    for script in scripts:
        checker = checkers.of(script)
        found.append(features_in(checker.scenario, checker.execute()))
        on_script(script.name)
    return CoverObject(
        schema=SCHEMA,
        scripts=len(found),
        pairs=covered_apart(found),
        missing={str(one): tuple(sorted(left)) for one, left in missing_apart(found).items()},
    )


def covering_scripts(
    missing: Mapping[str, Iterable[tuple[str, ...]]],
    spec: CoverSpec,
    on_row: Callable[[CoverRow, int], None] = lambda row, left: None,
    *,
    taken: Iterable[str] = (),
) -> Iterator[CoverScript]:
    """Scripts with all that is missing, by numerics, as far as it is reached. taken: names that are
    of other scripts
    """
    for numerics in JUDGED:
        wanted = frozenset((first, second) for first, second in missing[str(numerics)])
        rows = cover(wanted, numerics, spec, on_row=on_row)
        yield from scripts_of(minimised(rows, wanted, spec.shrinks), wanted, taken)


class CoverScript(msgspec.Struct, frozen=True, kw_only=True):
    """A script of an array. own: pairs that no other script has; text: of its file"""

    name: str
    own: int
    text: str


def scripts_of(
    rows: Sequence[CoverRow], missing: frozenset[Pair], taken: Iterable[str] = ()
) -> Iterator[CoverScript]:
    """A script for each row. missing: the pairs that the rows have to have together; taken: names
    that are of other scripts
    """
    names = set(taken)
    for row in rows:
        own = own_pairs(row, rows, missing)
        name = _name(row.scenario)
        others = (f"{name}-{number}" for number in count(2))
        name = next(one for one in chain((name,), others) if one not in names)
        names.add(name)
        script = msgspec.structs.replace(
            row.scenario,
            name=name,
            title=f"{_pairs(own)} of features in {row.scenario.model.numerics}",
            origin="reports/search/features.md",
            expect=_expect(row),
        )
        text = _comment(row, own) + _LIST.sub(_in_a_line, toml_of(script))
        yield CoverScript(name=name, own=len(own), text=text)


def _name(scenario: OwnScenario) -> str:
    engine = scenario.engine
    drafter = str(engine.drafter).replace("_", "-")
    return (
        f"pairs-{scenario.model.numerics}-{engine.cache_mode}-{engine.layout}-depth-{engine.depth}"
        f"-{drafter}-{engine.draft_len_max}"
    )


def _expect(row: CoverRow) -> Expect:
    """Once each of what the engine counts and the run had."""
    return Expect(**{name: 1 for name in Expect.__struct_fields__ if row.counters.get(name)})


def _comment(row: CoverRow, own: frozenset[Pair]) -> str:
    numerics = row.scenario.model.numerics
    lines = [
        "A row of the covering array of strength two that `racegate scenarios cover` makes.",
        f"Exercises: {', '.join(sorted(row.features, key=PLACE.__getitem__))}.",
        f"From: {_pairs(own)} of these that no other script with numerics {numerics} has:",
    ]
    groups = list(_groups(own))
    lines += [f"- {name}, with {', '.join(others)}" for name, others in groups[:GROUPS_SHOWN_MAX]]
    left = sum(len(others) for _, others in groups[GROUPS_SHOWN_MAX:])
    lines += [f"- and {left} more"] if left else []
    return "".join(f"# {part}\n" for line in lines for part in wrap(line, WIDTH_MAX))


def _pairs(own: frozenset[Pair]) -> str:
    return "1 pair" if len(own) == 1 else f"{len(own)} pairs"


def _groups(pairs: Iterable[Pair]) -> Iterator[tuple[str, list[str]]]:
    """Pairs by the feature that most of those left have in common."""
    left = set(pairs)
    while left:
        partners: dict[str, list[str]] = defaultdict(list)
        for first, second in left:
            partners[first].append(second)
            partners[second].append(first)
        name = max(partners, key=lambda one: (len(partners[one]), -PLACE[one]))
        yield name, sorted(partners[name], key=PLACE.__getitem__)
        left -= {pair for pair in left if name in pair}


def _in_a_line(found: re.Match[str]) -> str:
    return f"[{', '.join(part.strip().rstrip(',') for part in found[1].splitlines())}]"
