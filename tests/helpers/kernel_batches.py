"""Batches of rows for the kernels that keep state: valid and wrong counts, columns and blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernel_twins import Array, int32, starts

BLOCKS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """What every stateful kernel gets about its rows; table [R, 1 + K] of distinct blocks."""

    query_start: Array
    table: Array
    accepted: Array
    computed: Array
    is_decode: Array

    @property
    def tokens(self) -> int:
        return int(self.query_start[-1])

    @property
    def counts(self) -> tuple[Array, Array, Array, Array]:
        return self.query_start, self.accepted, self.computed, self.is_decode


def decode_rows(lengths: Sequence[int], accepted: Sequence[int], *, columns: int) -> Rows:
    """Decode rows in the middle of their sequence, row r with its own blocks."""
    rows = len(lengths)
    return Rows(
        query_start=starts(lengths),
        table=np.arange(1, 1 + rows * columns, dtype=np.int32).reshape(rows, columns),
        accepted=int32(*accepted),
        computed=int32(*range(5, 5 + rows)),
        is_decode=np.ones(rows, np.int32),
    )


def random_rows(rng: np.random.Generator, lengths: Sequence[int], *, columns: int) -> Rows:
    """Rows of any kind, with counts outside the window and blocks that are null or no blocks."""
    rows = len(lengths)
    table = rng.permutation(np.arange(1, BLOCKS))[: rows * columns].astype(np.int32)
    wrong = rng.random(rows * columns) < 0.2
    table[wrong] = rng.choice(int32(0, -1, BLOCKS, 0x7F7F7F7F), int(wrong.sum()))
    return Rows(
        query_start=starts(lengths),
        table=table.reshape(rows, columns),
        accepted=rng.integers(0, columns + 2, rows).astype(np.int32),
        computed=rng.integers(0, 3, rows).astype(np.int32),
        is_decode=rng.integers(0, 2, rows).astype(np.int32),
    )
