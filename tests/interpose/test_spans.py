"""Stretches of memory and their owners against every byte by itself."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from racegate.history.finding import Stack
from racegate.interpose.device.spans import AllocationSites, Place, Spans

SIZE = 24
EARLIER_MAX = 3  # owners of a block that are remembered
bounds = st.lists(st.integers(0, SIZE), min_size=2, max_size=8, unique=True).map(sorted)
stretches = bounds.map(lambda found: [*zip(found[::2], found[1::2], strict=False)])
places = st.lists(st.sampled_from((Place.PINNED, Place.DEVICE)), min_size=4, max_size=4)
blocks = st.tuples(st.integers(0, SIZE - 1), st.integers(1, 8), st.booleans())


@given(stretches, places, stretches)
def test_of_ranges_the_pinned_parts_of_each_stretch_are_one(
    held: list[tuple[int, int]], kinds: list[Place], asked: list[tuple[int, int]]
) -> None:
    spans = Spans()
    for (low, high), place in zip(held, kinds, strict=False):
        spans.add(low, high - low, place, is_whole_pages=True)
    byte = {at for low, high in asked for at in range(low, high)}
    expected = []
    for (low, high), place in zip(held, kinds, strict=False):
        inside = sorted(byte & set(range(low, high)))
        if inside and place is Place.PINNED:
            expected.append((inside[0], inside[-1] + 1))
    assert [*spans.pinned_hulls(tuple(asked))] == expected
    pinned = [pair for pair, place in zip(held, kinds, strict=False) if place is Place.PINNED]
    assert spans.pinned == len(pinned)
    if pinned:
        assert spans.pinned_hull == (pinned[0][0], pinned[-1][1])
    for at in range(SIZE + 1):
        found = spans.find(at)
        here = [pair for pair in held if pair[0] <= at < pair[1]]
        assert [(found.base, found.end)] == here if found is not None else not here


@given(st.lists(blocks, max_size=8), st.integers(0, 9))
def test_memory_has_its_latest_owner_and_remembers_a_few_of_those_before(
    told: list[tuple[int, int, bool]], until: int
) -> None:
    sites = AllocationSites()
    live: dict[int, tuple[int, int, Stack]] = {}
    ended: dict[int, list[tuple[int, int, Stack]]] = {}
    unseen: set[int] = set()
    for index, (base, size, is_unseen) in enumerate(told):
        stack: Stack = (("program.py", index, "main"),)
        sites.add(base, size, index, stack, is_unseen=is_unseen)
        for other in [one for one in live if one < base + size and base < live[one][0]]:
            ended[other] = [live.pop(other), *ended.get(other, [])][:EARLIER_MAX]
        live[base] = (base + size, index, stack)
        (unseen.add if is_unseen else unseen.discard)(base)
    for at in range(SIZE + 8):
        here = [(base, *site[1:]) for base, site in live.items() if base <= at < site[0]]
        assert sites.find(at) == (here[0] if here else None)
        before = [
            site
            for base, some in ended.items()
            for site in some
            if base <= at < site[0] and site[1] <= until
        ]
        latest = max(before, key=lambda site: site[1])[2] if before else ()
        assert sites.earlier(at, until) == latest
    for low in range(0, SIZE, 5):
        seen = sorted((one, *live[one][:2]) for one in live if one not in unseen)
        inside = [one for one in seen if one[0] < low + 6 and low < one[1]]
        assert sites.within(low, low + 6) == inside


def test_views_of_memory_are_forgotten_when_some_of_it_is_no_more() -> None:
    spans = Spans()
    spans.add(0, 8, Place.DEVICE, is_whole_pages=True)
    spans.aliases["view"] = spans
    spans.remove(4)
    assert spans.aliases, "nothing begins there"
    spans.remove(0)
    assert not spans.aliases
