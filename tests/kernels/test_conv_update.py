"""The causal convolution: the launcher against its twin, and the twin against the definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_batches import BLOCKS, Rows, decode_rows, random_rows
from kernel_twins import DTYPES, POISON_MAKES_NAN, Array, compare, int32, sliced, starts, values
from racegate_kernels.backend import EAGER
from racegate_kernels.numerics import mix_eager


def inputs(
    rng: np.random.Generator, rows: Rows, dtype: Any, *, channels: int, width: int
) -> list[Array]:
    x = sliced(values(rng, (rows.tokens, channels), dtype))
    weight = values(rng, (channels, width), dtype)
    capacity = width - 1 + rows.table.shape[1] - 1
    window = values(rng, (BLOCKS, channels, capacity), dtype)
    return [x, weight, window, rows.table[:, 0], *rows.counts]


@DTYPES
@pytest.mark.parametrize("channels", [1, 5, 130])
@pytest.mark.parametrize("width", [2, 3, 4])
def test_decode_rows_read_at_every_offset(dtype: Any, channels: int, width: int) -> None:
    rows = decode_rows([4, 1, 2, 3, 4], [1, 2, 3, 4, 4], columns=4)
    rng = np.random.default_rng(0)
    compare("conv_update", *inputs(rng, rows, dtype, channels=channels, width=width))


@POISON_MAKES_NAN
@DTYPES
@settings(max_examples=30)
@given(
    lengths=st.lists(st.integers(0, 11), min_size=1, max_size=6),
    columns=st.integers(1, 4),
    width=st.integers(1, 4),
    seed=st.integers(0, 99),
)
def test_any_rows(dtype: Any, lengths: list[int], columns: int, width: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = random_rows(rng, lengths, columns=columns)
    compare("conv_update", *inputs(rng, rows, dtype, channels=3, width=width))


@pytest.mark.parametrize("width", [2, 4])
def test_rolled_back_decoding_equals_the_definition(width: int) -> None:
    """Every step feeds drafts of which some are rejected; the outputs of the others are true."""
    channels, drafts_max = 2, 2
    rng = np.random.default_rng(2)
    true = values(rng, (12, channels), np.uint32)
    weight = values(rng, (channels, width), np.uint32)
    expected = plain_outputs(true, weight)

    window = values(rng, (3, channels, width - 1 + drafts_max), np.uint32)
    done, accepted = 0, 1
    for scheduled, kept in [(4, 4), (3, 2), (1, 1), (3, 3), (2, 1), (1, 1)]:
        prefill = done == 0
        x = true[done : done + scheduled].copy()
        x[kept:] = values(rng, x[kept:].shape, np.uint32)
        counts = starts([scheduled]), int32(accepted), int32(done), int32(not prefill)
        y = EAGER.conv_update(x, weight, window, int32(2), *counts)
        np.testing.assert_array_equal(y[:kept], expected[done : done + kept])
        done, accepted = done + kept, 1 if prefill else kept
    assert done == 12


def plain_outputs(x: Array, weight: Array) -> Array:
    """DEFINITION section 2, the causal convolution in exact, with Python's integers."""
    width = weight.shape[1]
    sums = np.zeros_like(x)
    for t, ch in np.ndindex(x.shape):
        taps = [(tap, t - (width - 1) + tap) for tap in range(width)]
        total = sum(int(weight[ch, tap]) * int(x[i, ch]) for tap, i in taps if i >= 0)
        sums[t, ch] = total % 2**32
    return mix_eager(sums)
