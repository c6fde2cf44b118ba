"""The kernels that make a step's inputs: positions, slots, corrected counts, input ids."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_twins import Array, compare, int32, poison, starts
from racegate_kernels.poison import POISON_I32

SLOW = settings(max_examples=25)
LENGTHS = st.lists(st.integers(0, 6), min_size=1, max_size=7)


@SLOW
@given(lengths=LENGTHS, tail=st.integers(0, 5), seed=st.integers(0, 99))
def test_positions_and_slots(lengths: list[int], tail: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, tokens = len(lengths), sum(lengths)
    query_start = starts(lengths)
    computed = rng.integers(-2, 20, rows).astype(np.int32)
    positions, seq_lens = poison((tokens + tail,)), poison((rows + tail,))
    made = compare("positions", computed, query_start, positions, seq_lens).args[2]
    assert not made[tokens:].any()
    table = rng.choice(int32(0, -1, 3, 9, 40, POISON_I32), (rows, 4))
    slots = poison((tokens + tail,))
    made = compare("slot_mapping", made, query_start, table, slots, block_size=4).args[3]
    assert (made[tokens:] == -1).all()


@settings(max_examples=8)
@given(lengths=LENGTHS, tail=st.integers(0, 5), seed=st.integers(0, 99))
def test_mrope_positions_lose_what_the_counts_lost(
    lengths: list[int], tail: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    rows, tokens = len(lengths), sum(lengths)
    host = rng.integers(-5, 90, (tokens, 3)).astype(np.int32)
    optimistic, drift = rng.integers(0, 20, (2, rows)).astype(np.int32)
    places = poison((tokens + tail, 3))
    counts = (optimistic - drift, optimistic)
    made = compare("correct_mrope", host, *counts, starts(lengths), places).args[4]
    np.testing.assert_array_equal(made[:tokens], host - np.repeat(drift, lengths)[:, None])
    assert not made[tokens:].any()


def test_mrope_positions_of_long_rows() -> None:
    host = np.arange(900, dtype=np.int32).reshape(300, 3)
    places = poison((400, 3))
    made = compare("correct_mrope", host, int32(2, 7), int32(5, 7), starts([200, 100]), places).args
    assert made[4][[0, 199, 200, 299, 300]].tolist() == [
        [-3, -2, -1],
        [594, 595, 596],
        [600, 601, 602],
        [897, 898, 899],
        [0, 0, 0],
    ]


def test_positions_and_slots_of_long_rows() -> None:
    query_start = starts([300, 0, 129])
    positions, slots = poison((700,)), poison((700,))
    positions = compare("positions", int32(3, 9, 1), query_start, positions, poison((300,))).args[2]
    table = np.arange(3 * 40, dtype=np.int32).reshape(3, 40)
    slots = compare("slot_mapping", positions, query_start, table, slots, block_size=8).args[3]
    assert slots[[0, 299, 300, 428]].tolist() == [3, 37 * 8 + 6, 80 * 8 + 1, 96 * 8 + 1]


def test_slots_read_a_slice_of_a_wider_table() -> None:
    table = np.arange(24, dtype=np.int32).reshape(3, 8)[:, 2:5]
    compare(
        "slot_mapping", int32(0, 5, 11, 12), starts([1, 2, 1]), table, poison((4,)), block_size=4
    )


MOVES = {
    "stays": [0, 1, 2, 3, 4],
    "2-cycle": [1, 0, 2, -1, -1],
    "3-cycle": [1, 2, 0, 3, -1],
    "shift": [1, 2, 3, 4, -1],
    "one source twice": [4, 4, 0, 0, -1],
    "outside": [5, 1 << 20, POISON_I32, -(2**31), 0],
}


@pytest.mark.parametrize("previous", MOVES.values(), ids=MOVES)
@pytest.mark.parametrize("rows", [1, 5])
def test_correct_computed_moves_in_place(previous: list[int], rows: int) -> None:
    computed = int32(10, 20, 30, 40, 50)
    scheduled, drafts, valid = int32(4, 1, 3, 1, 9), int32(3, 0, 2, 0, 0), int32(2, 1, 3, 1, 0)
    host, prev = int32(1, 2, 3, 4, 5)[:rows], int32(*previous)[:rows]
    after = compare("correct_computed", computed, host, prev, scheduled, drafts, valid).args[0]
    if max(previous) < 5:
        for row, p in enumerate(prev):
            stayed = scheduled[p] - drafts[p] - 1 + valid[p]
            assert after[row] == (computed[p] + stayed if p >= 0 else host[row])


@SLOW
@given(rows=st.integers(1, 300), seed=st.integers(0, 99))
def test_correct_computed_of_any_permutation(rows: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    previous = rng.permutation(rows).astype(np.int32)
    previous[rng.random(rows) < 0.2] = -1
    vectors = [rng.integers(0, 100, rows).astype(np.int32) for _ in range(5)]
    computed, host, *of_previous_step = vectors
    compare("correct_computed", computed, host, previous, *of_previous_step)


@pytest.mark.parametrize("previous", MOVES.values(), ids=MOVES)
def test_select_accepted(previous: list[int]) -> None:
    accepted = poison((9,))
    compare(
        "select_accepted", accepted, int32(1, 2, 3, 4, 5), int32(*previous), int32(6, 7, 8, 9, 3)
    )


def test_select_accepted_of_many_rows() -> None:
    counts = np.arange(300, dtype=np.int32)
    previous = np.roll(counts, 7)
    after = compare("select_accepted", poison((300,)), counts * 0, previous, counts).args[0]
    np.testing.assert_array_equal(after, counts[previous])


def scatter(
    lengths: list[int], previous: list[int], draft_lens: list[int], *, rows_max: int, tail: int = 2
) -> Array:
    tokens, rows = sum(lengths), len(lengths)
    rng = np.random.default_rng(tokens + rows)
    return compare(
        "scatter_inputs",
        np.arange(1000, 1000 + tokens + tail, dtype=np.int32),
        starts(lengths),
        int32(*previous),
        int32(*draft_lens),
        rng.integers(0, 99, rows_max).astype(np.int32),
        rng.integers(100, 999, (rows_max, 3)).astype(np.int32),
    ).args[0]


def test_scatter_inputs_leaves_prompts_and_takes_partial_drafts() -> None:
    ids = scatter([4, 3, 1, 2, 4], [1, -1, 0, 2, 4], [3, 0, 0, 1, 3], rows_max=5)
    assert ids[4:7].tolist() == [1004, 1005, 1006]
    assert ids[14:].tolist() == [1014, 1015]


def test_scatter_inputs_with_previous_rows_outside_is_poison() -> None:
    ids = scatter([3, 2], [2, POISON_I32], [2, 1], rows_max=2)
    assert (ids[:5] == POISON_I32).all()


@SLOW
@given(data=st.data())
def test_scatter_inputs_with_wrong_counts_is_still_deterministic(data: st.DataObject) -> None:
    """Rows that write over each other, before the first token or behind the last one."""
    lengths = data.draw(LENGTHS)
    rows = len(lengths)
    wrong = st.sampled_from([0, 0, 1, 2, 3, 4, 9, -1, -3, POISON_I32])
    draft_lens = data.draw(st.lists(wrong, min_size=rows, max_size=rows))
    previous = data.draw(st.lists(st.integers(-1, rows + 1), min_size=rows, max_size=rows))
    scatter(lengths, previous, draft_lens, rows_max=rows)


def test_scatter_inputs_looks_through_all_rows() -> None:
    rows = 150
    ids = scatter([1] * rows, list(range(rows))[::-1], [0] * rows, rows_max=rows)
    assert (ids[:rows] < 99).all()
