"""Byte ranges of views against the set of their bytes."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from racegate.order.ranges import (
    RUNS_MAX,
    element_ranges,
    is_coarse,
    merged,
    size_of,
    strided_ranges,
)

pairs = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=8)
views = st.lists(st.tuples(st.integers(0, 4), st.integers(-12, 12)), max_size=3)


def bytes_in(ranges: tuple[tuple[int, int], ...]) -> set[int]:
    return {byte for low, high in ranges for byte in range(low, high)}


@given(pairs)
def test_merged_is_the_union_sorted_and_apart(given_pairs: list[tuple[int, int]]) -> None:
    ranges = merged(given_pairs)
    assert bytes_in(ranges) == {byte for low, high in given_pairs for byte in range(low, high)}
    assert all(ranges[i][1] < ranges[i + 1][0] for i in range(len(ranges) - 1))
    assert size_of(ranges) == len(bytes_in(ranges))


@given(views, st.sampled_from([1, 2, 4]))
def test_strided_ranges_are_the_bytes_of_the_view(
    dims: list[tuple[int, int]], itemsize: int
) -> None:
    shape = [extent for extent, _ in dims]
    strides = [stride for _, stride in dims]
    expected = set()
    for place in product(*map(range, shape)):
        first = 1000 + sum(i * stride for i, stride in zip(place, strides, strict=True))
        expected |= set(range(first, first + itemsize))
    assert bytes_in(strided_ranges(1000, shape, strides, itemsize)) == expected


def test_a_contiguous_tensor_is_one_range() -> None:
    assert strided_ranges(64, (3, 4), (16, 4), 4) == ((64, 112),)


def test_too_many_runs_are_taken_as_a_whole_and_told() -> None:
    shape, strides = (RUNS_MAX + 1,), (8,)
    assert strided_ranges(0, shape, strides, 4) == ((0, 8 * RUNS_MAX + 4),)
    assert is_coarse(shape, strides, 4)
    assert not is_coarse((RUNS_MAX,), strides, 4)


def test_elements_next_to_each_other_are_one_range() -> None:
    assert element_ranges(100, [5, 1, 2], 4) == ((104, 112), (120, 124))
