"""Block pools: first in first out, together or not at all, published blocks shared."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from racegate.engine.state.blocks import NULL_BLOCK, BlockPool


def test_blocks_are_taken_first_in_first_out_and_released_last_column_first() -> None:
    pool = BlockPool(6)
    assert pool.take(3) == [1, 2, 3]
    pool.release([1, NULL_BLOCK, 3])
    assert pool.take(4) == [4, 5, 3, 1]


def test_more_than_free_is_refused() -> None:
    pool = BlockPool(4)
    with pytest.raises(AssertionError, match="4 blocks are wanted, 3 are free"):
        pool.take(4)
    assert pool.free_count == 3


def test_a_double_free_is_refused() -> None:
    pool = BlockPool(4)
    blocks = pool.take(1)
    pool.release(blocks)
    with pytest.raises(AssertionError, match="freed twice"):
        pool.release(blocks)


def test_a_published_block_is_found_until_it_is_taken_for_new_content() -> None:
    pool = BlockPool(3)
    (block,) = pool.take(1)
    pool.publish((1, 2), block)
    pool.release([block])
    assert pool.find((1, 2)) == block
    assert pool.take(2) == [2, block]
    assert pool.find((1, 2)) is None


def test_sharing_takes_a_block_out_of_the_free_list() -> None:
    pool = BlockPool(3)
    (block,) = pool.take(1)
    pool.publish((7,), block)
    pool.release([block])
    assert pool.free_without([block]) == 1
    pool.share([block])
    assert pool.free_count == 1
    pool.share([block])
    pool.release([block])
    assert pool.free_count == 1
    pool.release([block])
    assert pool.free_count == 2


def test_a_key_keeps_its_first_block() -> None:
    pool = BlockPool(4)
    first, second = pool.take(2)
    pool.publish((1,), first)
    pool.publish((1,), second)
    assert pool.find((1,)) == first


@given(st.lists(st.integers(0, 3), max_size=40))
def test_every_block_is_free_or_held_and_never_both(moves: list[int]) -> None:
    pool = BlockPool(8)
    tables: list[list[int]] = []
    for move in moves:
        if move and move <= pool.free_count:
            tables.append(pool.take(move))
        elif tables:
            pool.release(tables.pop(0))
        view = pool.view(range(1, 8))
        held = [block for table in tables for block in table]
        assert len(set(held)) == len(held)
        assert set(held).isdisjoint(view.free)
        assert set(held) | view.free == set(range(1, 8))
