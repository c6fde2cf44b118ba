"""The kernels between sampling and drafting: accepted counts, next tokens, the drafter's inputs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_twins import compare, int32, poison, starts
from racegate_kernels.poison import POISON_I32

SLOW = settings(max_examples=25)
SAMPLED = int32([5, 6, 7, -1], [-1, -1, -1, -1], [1, 2, 3, 4], [9, -1, 8, -1], [-1, 3, -2, 120])


@pytest.mark.parametrize("columns", [1, 3, 4])
@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("kernel", ["accepted_count", "accepted_count_first_hole"])
def test_accepted_count_with_holes(kernel: str, rows: int, columns: int) -> None:
    compare(kernel, SAMPLED[:rows, :columns], poison((rows,)))


def test_the_two_accepted_counts_differ_on_holes_only() -> None:
    counts = compare("accepted_count", SAMPLED, poison((5,))).args[1]
    first_holes = compare("accepted_count_first_hole", SAMPLED, poison((5,))).args[1]
    assert counts.tolist() == [3, 0, 4, 2, 3]
    assert first_holes.tolist() == [3, 0, 4, 1, 0]


@pytest.mark.parametrize("mask_discarded", [0, 1])
def test_next_token(mask_discarded: int) -> None:
    args = [SAMPLED, int32(0, 0, 1, 0, 0), int32(50, 51, 52, 53, 54), poison((5,)), poison((5,))]
    after = compare("next_token", *args, vocab_size=100, mask_discarded=mask_discarded).args
    assert after[3].tolist() == [7, 51, 52, 8, 3]
    assert after[4].tolist() == [3, 0, 0 if mask_discarded else 4, 2, 1]


@pytest.mark.parametrize("columns", [1, 2, 5])
@pytest.mark.parametrize("rows", [1, 2, 70])
def test_next_token_and_counts_of_any_sampled_tokens(rows: int, columns: int) -> None:
    rng = np.random.default_rng(rows)
    sampled = rng.integers(-1, 12, (rows, columns)).astype(np.int32)
    discarded, backup = rng.integers(0, 2, (2, rows)).astype(np.int32)
    out = poison((rows,)), poison((rows,))
    compare("next_token", sampled, discarded, backup, *out, vocab_size=10, mask_discarded=1)
    compare("accepted_count", sampled, poison((rows,)))
    compare("accepted_count_first_hole", sampled, poison((rows,)))


def test_draft_inputs_ends_each_row_at_its_last_kept_input() -> None:
    after = compare(
        "draft_inputs",
        np.arange(10, 20, dtype=np.int32),
        starts([4, 3, 1, 2]),
        int32(3, 2, 0, 0),
        int32(2, 3, 1, 0),
        int32(70, 71, 72, 73),
        poison((10,)),
        poison((4,)),
    ).args
    assert after[6].tolist() == [1, 6, 7, 9]
    assert after[5].tolist() == [11, 70, 13, 0, 15, 16, 71, 72, 19, 73]


@pytest.mark.parametrize("lengths", [[0], [0, 3], [3, 0, 2], [2, 0], [0, 1, 0, 0]], ids=str)
def test_draft_inputs_of_empty_rows_writes_no_token(lengths: list[int]) -> None:
    tokens, rows = sum(lengths), len(lengths)
    counts = np.zeros(rows, np.int32), np.ones(rows, np.int32)
    ids, next_token = np.arange(tokens, dtype=np.int32), np.arange(70, 70 + rows, dtype=np.int32)
    query_start = starts(lengths)
    out = poison((tokens,)), poison((rows,))
    after = compare("draft_inputs", ids, query_start, *counts, next_token, *out).args
    for row, length in enumerate(lengths):
        if length > 0:
            assert after[5][query_start[row + 1] - 1] == next_token[row]


@SLOW
@given(data=st.data())
def test_draft_inputs_with_wrong_counts_is_still_deterministic(data: st.DataObject) -> None:
    """Rows that write over each other, or behind the last token."""
    lengths = data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=6))
    tokens, rows = sum(lengths), len(lengths)
    wrong = st.lists(st.sampled_from([0, 1, 2, 3, 7, POISON_I32]), min_size=rows, max_size=rows)
    draft_lens, valid = int32(*data.draw(wrong)), int32(*data.draw(wrong))
    next_token = np.arange(70, 70 + rows, dtype=np.int32)
    ids = np.arange(tokens, dtype=np.int32)
    out = poison((tokens,)), poison((rows,))
    compare("draft_inputs", ids, starts(lengths), draft_lens, valid, next_token, *out)
