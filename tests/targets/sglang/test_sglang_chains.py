"""Chains of drafts, built and verified as SGLang's compiled kernels do it."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from racegate.targets.sglang.inside.chains import build_chain, verify_chain

FULL, DRAFTS_ONLY, PACKED = 0, 1, 2
WIDTH = 4  # a sampled token and three drafts
TOKENS = st.lists(st.integers(0, 2), min_size=WIDTH, max_size=WIDTH)


def built(lengths: list[int], mask: torch.Tensor, mode: int) -> tuple[torch.Tensor, ...]:
    """Positions and, by request, the place of each draft, of the next one, and of its sibling."""
    requests = len(lengths)
    positions = torch.full((requests * WIDTH,), -7)
    places, following, siblings = torch.full((3, requests, WIDTH), -1)
    none = torch.empty(0, dtype=torch.int64)
    of = torch.tensor(lengths)
    build_chain(
        none, none, of, mask, positions, places, following, siblings, 1, WIDTH - 1, WIDTH, mode
    )
    return positions, places, following, siblings


@settings(max_examples=30)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=3), st.integers(0, 6))
def test_a_draft_attends_to_what_stands_before_it(lengths: list[int], spare: int) -> None:
    size = sum((length + WIDTH) * WIDTH for length in lengths)
    mask = torch.zeros(size + spare, dtype=torch.bool)
    positions, places, following, siblings = built(lengths, mask, FULL)
    expected: list[bool] = []
    for length in lengths:
        for row in range(WIDTH):
            expected += [False] * length + [column <= row for column in range(WIDTH)]
    assert mask.tolist() == expected + [False] * spare
    assert positions.tolist() == [n + i for n in lengths for i in range(WIDTH)]
    assert places.flatten().tolist() == list(range(len(lengths) * WIDTH))
    assert following.tolist() == [[1, 2, 3, -1]] * len(lengths) and bool((siblings == -1).all())


def test_a_mask_of_drafts_alone_has_no_columns_for_what_stands_before() -> None:
    mask = torch.zeros(2 * WIDTH * WIDTH + 3, dtype=torch.uint8)
    built([5, 9], mask, DRAFTS_ONLY)
    causal = [int(column <= row) for row in range(WIDTH) for column in range(WIDTH)]
    assert mask.tolist() == causal * 2 + [0] * 3


def test_trees_and_packed_masks_are_refused_by_name() -> None:
    with pytest.raises(NotImplementedError, match="mode 2"):
        built([5], torch.zeros(9, dtype=torch.uint8), PACKED)
    none = torch.empty(0, dtype=torch.int64)
    with pytest.raises(NotImplementedError, match="a tree, 2 at a time"):
        build_chain(none, none, none, none, none, none, none, none, 2, 3, 4, FULL)


@settings(max_examples=60)
@given(st.lists(st.tuples(TOKENS, TOKENS), min_size=1, max_size=3))
def test_drafts_are_accepted_until_one_is_not_what_the_model_says(
    rows: list[tuple[list[int], list[int]]],
) -> None:
    requests = len(rows)
    candidates, said = (torch.tensor(column) for column in zip(*rows, strict=True))
    _, places, following, siblings = built([1] * requests, torch.zeros(999), DRAFTS_ONLY)
    predicts = torch.zeros(requests * WIDTH, dtype=torch.int32)
    accepted = torch.full((requests, WIDTH), -1, dtype=torch.int32)
    counts = torch.full((requests,), -9, dtype=torch.int32)
    verify_chain(predicts, accepted, counts, candidates, places, following, siblings, said)
    for request, (drafts, true) in enumerate(rows):
        first = request * WIDTH
        count = next((i for i in range(WIDTH - 1) if drafts[i + 1] != true[i]), WIDTH - 1)
        kept = range(first, first + count + 1)
        assert counts[request] == count
        assert accepted[request].tolist() == [*kept] + [-1] * (WIDTH - 1 - count)
        own = predicts[first : first + WIDTH].tolist()
        assert own == true[: count + 1] + [0] * (WIDTH - 1 - count)
