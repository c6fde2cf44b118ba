"""Verification of drafts: the launcher against its twin, and the twin against the definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_twins import DTYPES, Array, compare, int32, packed, poison, starts, values
from racegate_kernels.backend import EAGER
from racegate_kernels.numerics import GOLDEN, MIX_1, MIX_2, mix_eager
from racegate_kernels.poison import POISON_I32
from racegate_kernels.rejection_verify import draw_tokens_eager

TEMPERATURES = [0.0, 1.0, 0.7, 1e-4, 50.0, 2.5 / 256, 3.5 / 256, 1e6]


def batch(
    rng: np.random.Generator, dtype: Any, *, drafts: list[int], vocab_size: int, sharp: bool
) -> list[Array]:
    """Rows that verify these numbers of drafts, about half of which agree."""
    rows, columns = len(drafts), max(drafts) + 1
    logits = values(rng, (rows, columns, vocab_size), dtype)
    if dtype == np.uint32 and not sharp:
        logits >>= 9  # Levels so close that many tokens weigh something.
    query_start = starts([d + 1 for d in drafts])
    index = query_start[:-1, None] + np.arange(columns, dtype=np.int32)
    index[index >= query_start[1:, None]] = -1
    tokens = int(query_start[-1])
    positions = rng.integers(0, 1000, tokens + 2).astype(np.int32)
    temperature = rng.choice(TEMPERATURES, rows).astype(np.float32)
    seed = rng.integers(0, 2**32, rows, dtype=np.uint32)
    drawn = draw_tokens_eager(logits, temperature[:, None], seed[:, None], positions[index] + 1)
    ids = rng.integers(0, vocab_size, tokens + 2).astype(np.int32)
    agree = (rng.random(index.shape) < 0.6) & (index >= 0)
    ids[index[agree] + 1] = drawn[agree]
    return [logits, index, ids, positions, temperature, seed, poison((rows, columns))]


@DTYPES
@settings(max_examples=25)
@given(
    drafts=st.lists(st.integers(0, 3), min_size=1, max_size=5),
    vocab_size=st.sampled_from([1, 2, 7, 100]),
    sharp=st.booleans(),
    seed=st.integers(0, 999),
)
def test_any_rows(
    dtype: Any, drafts: list[int], vocab_size: int, seed: int, *, sharp: bool
) -> None:
    rng = np.random.default_rng(seed)
    args = batch(rng, dtype, drafts=drafts, vocab_size=vocab_size, sharp=sharp)
    compare("rejection_verify", *args)


@DTYPES
@pytest.mark.parametrize("vocab_size", [4096, 4097, 10_000])
def test_large_vocabularies(dtype: Any, vocab_size: int) -> None:
    rng = np.random.default_rng(1)
    args = batch(rng, dtype, drafts=[1, 0, 2, 1, 1], vocab_size=vocab_size, sharp=False)
    args[4][...] = [0.0, 1.0, 3.0, 0.3, 100.0]
    compare("rejection_verify", *args)


def test_equal_logits_of_a_large_vocabulary_need_64_bits() -> None:
    args = batch(np.random.default_rng(2), np.uint32, drafts=[3], vocab_size=66_000, sharp=True)
    args[0][...] = 5
    args[4][...] = 1.0
    compare("rejection_verify", *args)


@DTYPES
def test_logit_rows_outside_the_inputs_read_poison(dtype: Any) -> None:
    args = batch(np.random.default_rng(3), dtype, drafts=[2, 2], vocab_size=9, sharp=True)
    args[1][...] = int32([0, 40, POISON_I32], [7, 8, 0])
    args[4][...] = 1.0
    compare("rejection_verify", *args)


def test_every_outcome_of_a_row_with_two_drafts() -> None:
    """Greedy, 0 at every position: the drafts alone decide how many tokens come out."""
    drafts = int32([0, 0], [0, 1], [1, 0], [1, 1])
    ids = np.concatenate([np.full((4, 1), 5, np.int32), drafts], axis=1).reshape(-1)
    index = np.arange(12, dtype=np.int32).reshape(4, 3)
    logits = np.zeros((4, 3, 4), np.uint32)
    zeros = np.zeros(4, np.float32), np.zeros(4, np.uint32)
    args = [logits, index, ids, ids, *zeros, poison((4, 3))]
    sampled = compare("rejection_verify", *args).args[6]
    assert sampled.tolist() == [[0, 0, 0], [0, 0, -1], [0, -1, -1], [0, -1, -1]]


def mask_some(rng: np.random.Generator, logits: Array, *, share: float) -> Array:
    """Forbids tokens in place, but never all of a distribution; [R, 1 + K, V] bool: allowed."""
    allowed = rng.random(logits.shape) < share
    spared = rng.integers(0, logits.shape[-1], logits.shape[:-1])
    np.put_along_axis(allowed, spared[..., None], True, axis=-1)
    EAGER.mask_logits(logits, packed(allowed))
    return allowed


@settings(max_examples=40)
@given(
    drafts=st.lists(st.integers(0, 3), min_size=1, max_size=5),
    vocab_size=st.sampled_from([1, 2, 7, 100]),
    share=st.sampled_from([0.0, 0.1, 0.5, 0.9]),
    seed=st.integers(0, 999),
)
def test_forbidden_floats_are_never_drawn(
    drafts: list[int], vocab_size: int, share: float, seed: int
) -> None:
    """Logits of -inf, greedy and random. A NaN would warn, and warnings are errors."""
    rng = np.random.default_rng(seed)
    args = batch(rng, np.float32, drafts=drafts, vocab_size=vocab_size, sharp=True)
    allowed = mask_some(rng, args[0], share=share)
    sampled = compare("rejection_verify", *args).args[6]
    row, column = np.nonzero(sampled >= 0)
    assert len(row) >= len(drafts)
    assert allowed[row, column, sampled[row, column]].all()


def test_forbidden_floats_of_a_large_vocabulary() -> None:
    rng = np.random.default_rng(4)
    args = batch(rng, np.float32, drafts=[1, 0, 2, 1, 1], vocab_size=10_000, sharp=True)
    args[0][:, :, 3000:9000] = -np.inf  # A whole block of the loop, and the starts of two.
    args[4][...] = [0.0, 1.0, 3.0, 0.3, 100.0]
    sampled = compare("rejection_verify", *args).args[6]
    assert not ((sampled >= 3000) & (sampled < 9000)).any()


@pytest.mark.parametrize("vocab_size", [4, 5000])
def test_a_number_above_all_rounded_shares_draws_the_last_token_with_a_weight(
    vocab_size: int,
) -> None:
    """In float32 the highest number is 1, which no share exceeds; the last tokens are forbidden."""
    logits = np.zeros((1, 1, vocab_size), np.float32)
    logits[..., -2:] = -np.inf
    seed = np.array([seed_of(0xFFFFFFFF, n=8)], np.uint32)
    at = int32([0]), int32(0), int32(7)
    args = [logits, *at, np.ones(1, np.float32), seed, poison((1, 1))]
    assert number_at(seed[0], 8) == 0xFFFFFFFF
    assert compare("rejection_verify", *args).args[6].tolist() == [[vocab_size - 3]]


def test_a_number_of_zero_draws_the_first_token_with_a_weight() -> None:
    logits = np.array([[[-np.inf, -np.inf, 0.0, -np.inf, 3.0]]], np.float32)
    seed = np.array([seed_of(0, n=8)], np.uint32)
    args = [logits, int32([0]), int32(0), int32(7), np.ones(1, np.float32), seed, poison((1, 1))]
    assert compare("rejection_verify", *args).args[6].tolist() == [[2]]


@settings(max_examples=30)
@given(drafts=st.lists(st.integers(0, 3), min_size=1, max_size=4), seed=st.integers(0, 999))
def test_twin_equals_the_definition(drafts: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    args = batch(rng, np.uint32, drafts=drafts, vocab_size=11, sharp=False)
    EAGER.rejection_verify(*args)
    logits, index, ids, positions, temperature, row_seed, sampled = args
    for row, d in enumerate(drafts):
        emitted = []
        for place in range(d + 1):
            at = index[row, place]
            u = number_at(row_seed[row], int(positions[at]) + 1)
            emitted.append(draw([int(x) for x in logits[row, place]], float(temperature[row]), u))
            if place < d and emitted[-1] != ids[at + 1]:
                break
        padding = [-1] * (sampled.shape[1] - len(emitted))
        assert sampled[row].tolist() == emitted + padding


def number_at(seed: np.uint32, n: int) -> int:
    mixed = int(mix_eager(np.array([seed]))[0])
    return int(mix_eager(np.array([(mixed + n * GOLDEN) % 2**32], np.uint32))[0])


def seed_of(number: int, *, n: int) -> int:
    """The seed with this number at position n: number_at backwards."""
    return unmixed((unmixed(number) - n * GOLDEN) % 2**32)


def unmixed(x: int) -> int:
    x ^= x >> 16
    x = x * pow(MIX_2, -1, 2**32) % 2**32
    x ^= x >> 15 ^ x >> 30
    x = x * pow(MIX_1, -1, 2**32) % 2**32
    return x ^ x >> 16


def draw(logits: list[int], temperature: float, u: int) -> int:
    """DEFINITION section 3 in exact, with Python's integers."""
    if temperature == 0:
        return logits.index(max(logits))
    q = max(round(256 * temperature), 1)
    levels = [x >> 16 for x in logits]
    weights = [65536 >> min((max(levels) - level) // (8 * q), 31) for level in levels]
    r = (u * sum(weights)) >> 32
    return next(v for v in range(len(weights)) if sum(weights[: v + 1]) > r)
