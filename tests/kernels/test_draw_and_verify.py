"""Drafts drawn from weights, and their verification: the launchers against their twins, and the
twins against the laws of rejection sampling.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_twins import DTYPES, Array, compare, int32, poison, starts, values
from racegate_kernels.backend import EAGER
from racegate_kernels.poison import POISON_I32
from racegate_kernels.rejection_verify import exact_weights_eager

TEMPERATURES = [0.0, 0.7, 2.0, 8.0, 50.0]
DRAWS = 200_000


def drafted(rng: np.random.Generator, dtype: Any, *, rows: int, k: int, vocab_size: int) -> Any:
    """Drafts [R, K] and their weights [R, K, V], drawn column by column; temperature, seed [R] and
    the position [R] of the first one.
    """
    temperature = rng.choice(TEMPERATURES, rows).astype(np.float32)
    seed = rng.integers(0, 2**32, rows, dtype=np.uint32)
    place = rng.integers(0, 1000, rows).astype(np.int32)
    drafts, weights = poison((rows, k)), weights_for(dtype, (rows, k, vocab_size))
    for column in range(k):
        logits = values(rng, (rows, vocab_size), dtype)
        args = (logits, temperature, seed, place + np.int32(column), drafts, weights)
        EAGER.draw_drafts(*args, column=column)
    return drafts, weights, temperature, seed, place


def weights_for(dtype: Any, shape: tuple[int, ...]) -> Array:
    """Poison, as the drafter finds its memory."""
    if dtype == np.uint32:
        return np.full(shape, POISON_I32, np.int32)
    return np.full(shape, np.nan, np.float32)


def batch(rng: np.random.Generator, dtype: Any, *, drafts: list[int], vocab_size: int) -> Any:
    """The arguments of verify_drawn for rows with these numbers of drafts, whose weights stand in
    rows of another order.
    """
    rows, k = len(drafts), max([1, *drafts])
    ids, weights, temperature, seed, place = drafted(
        rng, dtype, rows=rows, k=k, vocab_size=vocab_size
    )
    query_start = starts([d + 1 for d in drafts])
    index = query_start[:-1, None] + np.arange(k + 1, dtype=np.int32)
    index[index >= query_start[1:, None]] = -1
    tokens = int(query_start[-1])
    input_ids, positions = poison((tokens,)), poison((tokens,))
    for row, count in enumerate(drafts):
        first = query_start[row]
        input_ids[first] = rng.integers(0, vocab_size)
        input_ids[first + 1 : first + 1 + count] = ids[row, :count]
        positions[first : first + 1 + count] = place[row] - 1 + np.arange(count + 1)
    source = rng.permutation(rows).astype(np.int32)
    stored = weights_for(dtype, (rows + 1, k, vocab_size))
    stored[source] = weights
    logits = values(rng, (rows, k + 1, vocab_size), dtype)
    return [
        logits,
        index,
        input_ids,
        positions,
        temperature,
        seed,
        stored,
        source,
        poison(index.shape),
    ]


@DTYPES
@pytest.mark.parametrize("vocab_size", [7, 97])
def test_drafts_and_their_weights(dtype: Any, vocab_size: int) -> None:
    rng = np.random.default_rng(vocab_size)
    rows, k = 5, 2
    _, _, _, seeds, place = drafted(rng, dtype, rows=rows, k=k, vocab_size=vocab_size)
    place[3] = -1
    weights = weights_for(dtype, (rows, k, vocab_size))
    logits = values(rng, (rows, vocab_size), dtype)
    heat = np.array(TEMPERATURES, np.float32)
    args = [logits, heat, seeds, place, poison((rows, k)), weights]
    done = compare("draw_drafts", *args, column=k - 1).args
    tokens, kept = done[4][:, -1], done[5][:, -1]
    assert (kept[np.arange(rows), tokens][place >= 0] > 0).all(), "what is drawn has weight"
    assert not kept[place < 0].any() and not tokens[place < 0].any()
    assert kept[0].tolist() == (np.arange(vocab_size) == logits[0].argmax()).tolist()


@DTYPES
@pytest.mark.parametrize(("vocab_size", "drafts"), [(2, [1, 0]), (7, [2, 0, 1, 2]), (128, [2, 1])])
def test_rows_with_weights_elsewhere(dtype: Any, vocab_size: int, drafts: list[int]) -> None:
    args = batch(np.random.default_rng(vocab_size), dtype, drafts=drafts, vocab_size=vocab_size)
    args[7][-1] += 9 * (len(drafts) > 2)  # a row outside is as good as none
    compare("verify_drawn", *args)


@settings(max_examples=25)
@given(vocab_size=st.sampled_from([2, 7, 97]), seed=st.integers(0, 999))
def test_point_masses_draw_what_plain_verification_draws(vocab_size: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    args = batch(rng, np.uint32, drafts=[3, 0, 2, 1, 3, 3], vocab_size=vocab_size)
    *shared, stored, source, sampled = args
    plain = sampled.copy()
    EAGER.rejection_verify(*shared, plain)
    ids = rng.integers(0, vocab_size, stored.shape[:2])
    ids[source] = shared[2][np.minimum(shared[1][:, :-1] + 1, len(shared[2]) - 1)]
    for weight in (1, 16):
        stored[...] = weight * (np.arange(vocab_size) == ids[..., None])
        EAGER.verify_drawn(*shared, stored, source, sampled)
        assert (sampled == plain).all()
    stored[...] = 0
    EAGER.verify_drawn(*shared, stored, source, sampled)
    assert (sampled == plain).all(), "a draft without weight is one that was not drawn"


@pytest.mark.parametrize(("heat", "draft_heat"), [(8.0, 8.0), (16.0, 4.0)])
def test_lossless_in_distribution(heat: float, draft_heat: float) -> None:
    """Chi-square of 200,000 rows with two drafts each: what verification makes of them, against
    both positions' own distributions.
    """
    rng = np.random.default_rng(15)
    vocab_size = 6
    target, own = (values(rng, (1, n, vocab_size), np.uint32) for n in (3, 2))
    ones, seed = np.ones(DRAWS, np.float32), np.arange(DRAWS, dtype=np.uint32)
    drafts, weights = poison((DRAWS, 2)), weights_for(np.uint32, (DRAWS, 2, vocab_size))
    for column in range(2):
        logits = np.broadcast_to(own[:, column], (DRAWS, vocab_size))
        place = np.full(DRAWS, 7 + column, np.int32)
        EAGER.draw_drafts(logits, draft_heat * ones, seed, place, drafts, weights, column=column)
    index = np.arange(3 * DRAWS, dtype=np.int32).reshape(DRAWS, 3)
    ids = np.insert(drafts, 0, 0, axis=1).reshape(-1)
    positions = np.tile(int32(6, 7, 8), DRAWS)
    sampled, logits = poison((DRAWS, 3)), np.broadcast_to(target, (DRAWS, 3, vocab_size))
    EAGER.verify_drawn(
        logits, index, ids, positions, heat * ones, seed, weights, index[:, 0] // 3, sampled
    )
    has_two = sampled[:, 1] >= 0
    assert 0.2 < has_two.mean() < 0.95, "some drafts are accepted, some recovered"
    assert_fits(sampled[:, 0], target[0, 0], heat)
    assert_fits(sampled[has_two, 1], target[0, 1], heat)
    accepted = sampled[:, 0] == drafts[:, 0]
    p, q = exact_weights_eager(target[0, 0], np.float32(heat)), weights[0, 0]
    overlap = np.minimum(p / p.sum(), q / q.sum()).sum()
    # A recovered token is never the draft: so many are accepted, and no others.
    assert abs(accepted.mean() - overlap) < 4 * np.sqrt(overlap * (1 - overlap) / DRAWS)


def assert_fits(tokens: Array, logits: Array, heat: float) -> None:
    """Chi-square of the tokens against the weights of the logits [V], at 1 in 10,000."""
    weights = exact_weights_eager(logits, np.float32(heat))
    expected = len(tokens) * weights / weights.sum()
    counts = np.bincount(tokens, minlength=len(weights))
    often = expected >= 5
    assert (counts[expected == 0] == 0).all()
    chi = ((counts - expected)[often] ** 2 / expected[often]).sum()
    assert chi < {1: 15.2, 2: 18.5, 3: 21.2, 4: 23.6, 5: 25.8}[int(often.sum()) - 1], chi
