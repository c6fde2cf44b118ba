"""Waits that are tried against their definition, over any pairs, records and waits."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from racegate.order.memory import Access
from racegate.order.remedies import LateWait, Source, TriedEdges, Version

LANES = 2
clocks = st.lists(st.integers(0, 3), min_size=LANES, max_size=LANES)
firsts = st.builds(
    lambda lane, number: Access(number, lane, number, "writes#1", ()),
    st.integers(0, LANES - 1),
    st.integers(1, 3),
)
versions = st.lists(
    st.builds(lambda lane, clock: Version(lane, clock, ()), st.integers(0, LANES - 1), clocks),
    min_size=1,
    max_size=4,
)
steps = st.lists(
    st.tuples(st.just("pair"), firsts, st.sets(st.integers(0, 3)))
    | st.tuples(st.just("wait"), st.integers(0, 3), clocks, st.sampled_from(("", "a thread"))),
    max_size=7,
)


@dataclass
class Definition:
    """Every pair with the records that were there, and every wait that covered one behind it."""

    pairs: list[tuple[Access, list[Version]]] = field(default_factory=list)
    open: list[tuple[Access, list[Version]]] = field(default_factory=list)
    lost: set[Source] = field(default_factory=set)
    late: LateWait | None = None

    def sources(self) -> set[Source]:
        """Of which a record orders every pair, but for those whose later one was waited for."""
        found = [
            {one.source for one in there if one.clock[first.lane] >= first.number}
            for first, there in self.pairs
        ]
        return set.intersection(*found) - self.lost if found else set()

    def waited(self, version: Version, known: list[int], by: str) -> None:
        covered = [pair for pair in self.open if known[pair[0].lane] >= pair[0].number]
        self.open = [pair for pair in self.open if pair not in covered]
        for first, there in covered:
            self.late = self.late or LateWait((), by, version.source)
            ordering = (one for one in there if one.clock[first.lane] >= first.number)
            if not any(one is version for one in ordering):
                self.lost.add(version.source)


@given(versions, steps)
def test_a_wait_is_moved_if_its_record_was_there_for_every_pair_and_orders_it(
    made: list[Version], told: list[tuple[object, ...]]
) -> None:
    tried, defined = TriedEdges(), Definition()
    for kind, *details in told:
        if kind == "pair":
            first, places = details
            there = [made[at] for at in sorted(places) if at < len(made)]
            tried.try_pair(first, there)
            defined.pairs.append((first, there))
            defined.open.append((first, there))
        else:
            at, known, by = details
            version = made[at % len(made)]
            tried.waited(known, version, (), by)
            defined.waited(version, known, by)
    late, sources = defined.late, defined.sources()
    assert (tried.late, tried.sources or set()) == (late, sources)
    is_moved = late is not None and not late.by and late.source in sources
    assert tried.moved == (late if is_moved else None)
