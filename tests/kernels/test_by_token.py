"""Kernels of cache mode all: blocks by token, and the convolution that keeps its history there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_conv_update import plain_outputs

from kernel_batches import BLOCKS, random_rows
from kernel_twins import (
    DTYPES,
    POISON_MAKES_NAN,
    Array,
    compare,
    int32,
    poison,
    sliced,
    starts,
    values,
)
from racegate_kernels.backend import EAGER

INTERVAL, WIDTH = 4, 9

# Computed tokens, tokens of the step, the last step's anchor and count, whether the row decodes.
ROWS = st.tuples(
    st.integers(-1, 20),
    st.integers(0, WIDTH - 1),
    st.integers(-1, 6),
    st.integers(1, 4),
    st.integers(0, 1),
)


@settings(max_examples=12)
@given(st.lists(ROWS, min_size=1, max_size=5))
def test_a_state_goes_where_its_block_says(rows: list[tuple[int, int, int, int, int]]) -> None:
    computed, tokens, anchor, accepted, decodes = (
        int32(*field) for field in zip(*rows, strict=True)
    )
    table = 1 + np.arange(len(rows) * 8, dtype=np.int32).reshape(-1, 8)
    window = poison((len(rows), WIDTH))
    counts = computed, starts(tokens), accepted, anchor, decodes
    after = compare("token_blocks", *counts, table, window, interval=INTERVAL).args[6]
    for row, (done, n, was, count, decode) in enumerate(rows):
        done = max(done, 0)
        running = (done + n) // INTERVAL

        def block(column: int, row: int = row) -> int:
            return int(table[row, column]) if 0 <= column < 8 else 0

        for place in range(WIDTH - 1):
            reached = done + place + 1
            expected = 0
            if place < n and reached % INTERVAL == 0:
                expected = block(reached // INTERVAL - 1)
            elif place < n and (decode or place == n - 1):
                expected = block(running + place * decode)
            assert after[row, place] == expected
        live = block(done // INTERVAL - 1)
        if done % INTERVAL:
            live = block(was + count - 1) if was >= 0 else 0
        assert after[row, -1] == (live if done else 0)


@POISON_MAKES_NAN
@DTYPES
@settings(max_examples=8)
@given(
    lengths=st.lists(st.integers(0, 9), min_size=1, max_size=2),
    width=st.integers(1, 4),
    channels=st.sampled_from([1, 3]),
    seed=st.integers(0, 99),
)
def test_any_rows(dtype: Any, lengths: list[int], width: int, channels: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = random_rows(rng, lengths, columns=12)
    x = sliced(values(rng, (rows.tokens, channels), dtype))
    weight = values(rng, (channels, width), dtype)
    window = values(rng, (BLOCKS, channels, width - 1), dtype)
    compare("conv_by_token", x, weight, window, rows.table, rows.query_start, rows.computed)


@pytest.mark.parametrize("width", [2, 4])
def test_decoding_from_any_token_equals_the_definition(width: int) -> None:
    """Every step feeds drafts of which some are rejected; each goes on from the last one kept."""
    channels, most = 2, 4
    rng = np.random.default_rng(2)
    true = values(rng, (12, channels), np.uint32)
    weight = values(rng, (channels, width), np.uint32)
    expected = plain_outputs(true, weight)
    window = values(rng, (1 + 2 * most, channels, width - 1), np.uint32)
    done, live = 0, 0
    for step, (scheduled, kept) in enumerate([(4, 4), (3, 2), (1, 1), (3, 3), (2, 1), (1, 1)]):
        x = true[done : done + scheduled].copy()
        x[kept:] = values(rng, x[kept:].shape, np.uint32)
        # Blocks of two steps in turn: the one that is read may be written as well.
        blocks = 1 + (np.arange(most, dtype=np.int32) + step % 3) % (2 * most)
        y = EAGER.conv_by_token(
            x,
            weight,
            window,
            np.array([[*blocks, live]], np.int32),
            starts([scheduled]),
            int32(done),
        )
        np.testing.assert_array_equal(y[:kept], expected[done : done + kept])
        done, live = done + kept, blocks[kept - 1]
    assert done == 12


def test_a_block_may_be_read_and_written() -> None:
    """What a row starts from is read before its first token's history is kept there."""
    rng = np.random.default_rng(0)
    x, weight = values(rng, (3, 2), np.uint32), values(rng, (2, 4), np.uint32)
    window = values(rng, (5, 2, 3), np.uint32)
    before: Array = window[1].copy()
    table = int32([1, 2, 3, 1])
    after = compare("conv_by_token", x, weight, window, table, starts([3]), int32(7)).args[2]
    np.testing.assert_array_equal(after[1], np.c_[before[:, 1:], x[0]])
    np.testing.assert_array_equal(after[2], np.c_[before[:, 2:], x[0], x[1]])
