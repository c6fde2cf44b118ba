"""What launches did, found by what they loaded: the same as if each were compared in whole."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from racegate.interpose.kernels.kept.calls import Places
from racegate.interpose.kernels.kept.effects import KnownLaunches, LaunchEffect, small

ROW_BYTES = 256  # of a row of logits: no small input
COUNTS: Places = ((0, 0, 1), (0, 1, 1), (0, 2, 1))
PLACES: Places = (*COUNTS, (1, 0, ROW_BYTES), (1, ROW_BYTES, ROW_BYTES))

memories = st.tuples(*(st.integers(0, 1) for _ in PLACES))
inputs = st.lists(st.sampled_from(PLACES), unique=True, max_size=4).map(tuple)


def standing(memory: Sequence[int], places: Places) -> bytes:
    return bytes(memory[PLACES.index(place)] for place in places)


def launch(places: Places, memory: Sequence[int], written: bytes = b"") -> LaunchEffect:
    first, found = standing(memory, small(places)), standing(memory, places)
    return LaunchEffect(places, first, found, (), (), written)


@given(st.lists(st.tuples(inputs, memories)), memories)
def test_those_are_found_whose_inputs_stand_in_memory(
    launches: list[tuple[Places, tuple[int, ...]]], now: tuple[int, ...]
) -> None:
    known, all_of_them = KnownLaunches(), set()
    for places, memory in launches:
        known.add(launch(places, memory))
        all_of_them.add((places, standing(memory, places)))
    found = [(one.inputs, one.found) for one in known.at(lambda places: standing(now, places))]
    expected = {
        (places, loaded) for places, loaded in all_of_them if standing(now, places) == loaded
    }
    assert len(found) == len(set(found)) and set(found) == expected


def test_rows_are_not_looked_at_where_a_count_is_another_one() -> None:
    known, looked = KnownLaunches(), []
    known.add(launch((PLACES[0], PLACES[3]), (1, 0, 0, 0, 0)))

    def found(places: Places) -> bytes:
        looked.extend(places)
        return standing((0, 0, 0, 0, 0), places)

    assert list(known.at(found)) == [] and looked == [PLACES[0]]


def test_what_is_no_memory_any_more_is_not_found() -> None:
    known = KnownLaunches()
    known.add(launch(PLACES[:1], (0, 0, 0, 0, 0)))
    assert list(known.at(lambda places: None)) == []


def test_a_launch_that_loaded_the_same_takes_the_place_of_the_one_before() -> None:
    known, memory = KnownLaunches(), (0, 0, 0, 0, 0)
    for written in (b"before", b"now"):
        assert known.add(launch(PLACES, memory, written))
    assert [one.written for one in known.at(lambda places: standing(memory, places))] == [b"now"]
    assert known.same(launch(PLACES, memory)) is not None
    assert known.same(launch(PLACES, (1, 0, 0, 0, 0))) is None
