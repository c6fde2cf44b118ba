"""The scripted drafter: proposes the truth up to a target, if its own inputs are right."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_twins import Array, compare, int32, poison, values
from racegate_kernels.numerics import DIGEST, mix_eager
from racegate_kernels.poison import POISON_I32
from racegate_kernels.scripted_draft import scripted_entries_eager

VOCAB = 50
BLOCK_SIZE = 4


def arguments(places: list[int], *, drafts_max: int = 3, truth_len: int = 40) -> list[Array]:
    """One token per row, the last one that stays, with a right cache before it."""
    rows = len(places)
    rng = np.random.default_rng(rows)
    truth = rng.integers(0, VOCAB, (rows, truth_len)).astype(np.int32)
    index = np.arange(truth_len, dtype=np.int32)
    behind = np.concatenate([truth[:, 1:], truth[:, :1]], axis=1)
    entries = np.stack([scripted_entries_eager(tokens, index)[:, 0] for tokens in behind])
    digest = np.cumsum(mix_eager(entries + index.astype(np.uint32) * DIGEST), 1, dtype=np.uint32)
    columns = -(-truth_len // BLOCK_SIZE)
    table = np.arange(1, 1 + rows * columns, dtype=np.int32).reshape(rows, columns)
    cache = values(rng, (1 + rows * columns, BLOCK_SIZE, 1), np.uint32)
    padded = np.zeros((rows, columns * BLOCK_SIZE), np.uint32)
    padded[:, :truth_len] = entries
    cache[table] = padded.reshape(rows, columns, BLOCK_SIZE, 1)
    every = np.arange(rows)
    place = int32(*places)
    slots = table[every, place // BLOCK_SIZE] * BLOCK_SIZE + place % BLOCK_SIZE
    cache.reshape(-1)[slots] = 0  # Only this step's write makes the digest right.
    after = truth[every, place + 1]
    targets = (every % (drafts_max + 2)).astype(np.int32)
    last, requests = every.astype(np.int32), every.astype(np.int32)
    prepared = [after, place, slots, last, after, table, requests, targets]
    return [*prepared, truth, digest, cache, poison((rows, drafts_max))]


def test_right_inputs_give_the_truth_up_to_the_target() -> None:
    args = arguments([0, 3, 7, 8, 20])
    drafts = compare("scripted_draft", *args, vocab_size=VOCAB).args[-1]
    for row, place in enumerate(args[1]):
        true = args[8][row, place + 2 : place + 5]
        assert (drafts[row] == true).tolist() == [i < row - 1 for i in range(3)]


@pytest.mark.parametrize(
    ("argument", "value"), [(0, 1), (1, 2), (2, 2), (4, 1), (5, 0), (6, 0), (9, 5)]
)
def test_any_wrong_input_spoils_every_draft(argument: int, value: int) -> None:
    args = arguments([5, 9])
    args[7][...] = 9
    args[argument][1:] = value
    drafts = compare("scripted_draft", *args, vocab_size=VOCAB).args[-1]
    assert (drafts[0] == args[8][0, 7:10]).all()
    assert (drafts[1] != args[8][1, 11:14]).all()


@settings(max_examples=25)
@given(
    places=st.lists(st.integers(0, 38), min_size=1, max_size=5),
    drafts_max=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_wrong_indices_read_poison(places: list[int], drafts_max: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    args = arguments(places, drafts_max=drafts_max)
    for wrong in (args[1], args[2], args[3], args[5], args[6], args[7]):
        where = rng.random(wrong.shape) < 0.15
        wrong[where] = rng.choice(int32(0, -1, -7, 30, 1000, POISON_I32), int(where.sum()))
    compare("scripted_draft", *args, vocab_size=VOCAB)


def test_long_caches_and_drafts_in_a_wider_buffer() -> None:
    args = arguments([300, 127, 128], truth_len=310)
    args[-1] = poison((3, 8))[:, 2:5]
    args[7][...] = 4
    drafts = compare("scripted_draft", *args, vocab_size=VOCAB).args[-1]
    np.testing.assert_array_equal(drafts[1], args[8][1, 129:132])
