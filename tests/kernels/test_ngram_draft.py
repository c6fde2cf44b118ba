"""The n-gram drafter, and what trims the drafts that it did not find."""

from __future__ import annotations

import numpy as np

from kernel_twins import Array, compare, int32, poison, starts

BLOCK_SIZE = 4


def paged(rows: list[list[int]]) -> tuple[Array, Array]:
    """The cache [B, S, 1] and block table [R, M] in which each row has these tokens."""
    columns = max(-(-len(row) // BLOCK_SIZE) for row in rows)
    table = np.arange(1, 1 + len(rows) * columns, dtype=np.int32).reshape(len(rows), columns)[::-1]
    cache = poison((1 + len(rows) * columns, BLOCK_SIZE, 1))
    for blocks, tokens in zip(table, rows, strict=True):
        for place, token in enumerate(tokens):
            cache[blocks[place // BLOCK_SIZE], place % BLOCK_SIZE, 0] = token
    return cache, table.copy()


def test_what_followed_the_last_token_last_time() -> None:
    rows = [
        [7, 1, 2, 7, 3, 4, 5, 6, 7],  # the later place counts
        [1, 2, 3],  # nothing
        [5, 5],  # only what there is
        [9],
        [8, 8, 8, 8, 8, 8],
        [1, 2, 3],  # its place is behind its blocks
    ]
    cache, table = paged(rows)
    place = int32(*(len(row) - 1 for row in rows))
    place[-1] = 99
    done = compare("ngram_draft", place, np.arange(6, dtype=np.int32), table, cache, poison((6, 3)))
    assert done.args[-1].tolist() == [
        [3, 4, 5],
        [-1, -1, -1],
        [5, -1, -1],
        [-1, -1, -1],
        [8, -1, -1],
        [-1, -1, -1],
    ]


def test_a_match_further_back_than_one_block_of_the_kernel() -> None:
    tokens = [3, *range(10, 290), 3]
    cache, table = paged([tokens])
    args = [int32(len(tokens) - 1), int32(0), table, cache, poison((1, 2))]
    assert compare("ngram_draft", *args).args[-1].tolist() == [[10, 11]]


def test_missing_drafts_are_neither_inputs_nor_verified() -> None:
    prev_drafts = np.array([[4, -1, -1], [5, 6, 7], [-1, -1, -1], [-1, -1, -1]], np.int32)
    previous, lens = int32(1, 0, 2, -1, 3), int32(3, 2, 3, 0, 0)
    query_start = starts([4, 3, 4, 2, 1])
    index = query_start[1:, None] - 1 - lens[:, None] + np.arange(4)
    index = np.where(np.arange(4) <= lens[:, None], index, -1).astype(np.int32)
    ids = int32(*range(20, 36))
    expected, tokens = index.copy(), ids.copy()
    expected[1, 2:] = -1
    expected[2, 1:] = -1
    tokens[6] = 0
    tokens[8:11] = 0
    done = compare("trim_drafts", prev_drafts, previous, lens, query_start, index, ids)
    assert done.args[4].tolist() == expected.tolist()
    assert done.args[5].tolist() == tokens.tolist()
