"""The row policy on examples computed by hand."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from racegate_reference.rows import Region, condense, next_rows, region_of, reorder, rotate

D, S, L, P = Region.DECODE, Region.SHORT_EXTEND, Region.LONG_EXTEND, Region.PREFILL


@pytest.mark.parametrize(
    ("computed", "prefill_len", "tokens", "region"),
    [
        (5, 5, 3, D),
        (7, 5, 1, D),
        (4, 5, 1, S),
        (2, 5, 3, S),
        (1, 5, 4, L),
        (0, 5, 1, P),
        (0, 5, 5, P),
    ],
)
def test_region(computed: int, prefill_len: int, tokens: int, region: Region) -> None:
    found = region_of(computed=computed, prefill_len=prefill_len, tokens=tokens, draft_len_max=2)
    assert found is region


def test_condense_moves_the_last_row_into_the_lowest_hole() -> None:
    assert condense(["A", None, "C", None, "E", "F"]) == ("A", "F", "C", "E")
    assert condense([None, "B", None]) == ("B",)
    assert condense([None, None]) == ()
    assert condense(["A", "B"]) == ("A", "B")


def test_new_requests_fill_the_lowest_holes_in_plan_order() -> None:
    rows = ("A", "B", "C", "D")
    planned = {"D": D, "E": D, "A": D, "F": D, "G": D}
    # B and C leave: E and F take their rows, G a new one.
    assert next_rows(rows, planned, ()) == ("A", "E", "F", "D", "G")


def test_the_last_row_fills_what_is_left_of_the_holes() -> None:
    assert next_rows(("A", "B", "C", "D"), {"B": D, "C": D, "D": D}, ()) == ("D", "B", "C")


def test_a_preempted_request_loses_its_row_even_if_planned_at_once() -> None:
    planned = {"B": D, "C": D, "A": P}
    # A is preempted and comes back: rows (A is a hole, B, C), A takes the hole, then reorders.
    assert next_rows(("A", "B", "C"), planned, ("A",)) == ("C", "B", "A")
    # B leaves, the preempted C comes back into its hole, which is not C's old row.
    assert next_rows(("A", "B", "C"), {"A": D, "C": D}, ("C",)) == ("A", "C")
    assert next_rows(("A", "B", "C"), {}, ()) == ()


def test_reorder_moves_only_misplaced_rows() -> None:
    regions = {"A": P, "B": D, "C": D, "D": S, "E": D}
    # Places are D D D S P. A's place 0 goes to E; E's place 4 goes to A.
    assert reorder(("A", "B", "C", "D", "E"), regions) == ("E", "B", "C", "D", "A")
    # Two misplaced rows of a region keep their order on the places they take.
    regions = {"A": P, "B": P, "C": D, "D": D}
    assert reorder(("A", "B", "C", "D"), regions) == ("C", "D", "A", "B")
    # A cycle of three: places D S L.
    regions = {"A": L, "B": D, "C": S}
    assert reorder(("A", "B", "C"), regions) == ("B", "C", "A")


@given(st.lists(st.sampled_from(Region), max_size=8))
@settings(max_examples=60)
def test_reorder_sorts_by_region_and_leaves_what_stands_right(order: list[Region]) -> None:
    rows = tuple(f"R{i}" for i in range(len(order)))
    regions = dict(zip(rows, order, strict=True))
    ordered = reorder(rows, regions)
    assert sorted(ordered) == sorted(rows)
    assert [regions[name] for name in ordered] == sorted(order)
    for place, region in enumerate(sorted(order)):
        if order[place] is region:
            assert ordered[place] == rows[place]


def test_rotate_gives_each_request_the_row_of_the_next() -> None:
    rows = ("A", "B", "C", "D")
    regions = {"A": D, "B": D, "C": D, "D": P}
    # A to B's row, B to C's, C to A's.
    assert rotate(rows, ("A", "B", "C"), regions) == ("C", "A", "B", "D")
    assert rotate(rows, ("C", "A"), regions) == ("C", "B", "A", "D")


def test_rotate_needs_rows_in_one_region() -> None:
    regions = {"A": D, "B": D, "C": P}
    assert rotate(("A", "B", "C"), ("A", "C"), regions) is None
    assert rotate(("A", "B", "C"), ("A", "E"), regions) is None
    assert rotate((), ("A", "B"), {}) is None
