"""Pools, tables, and the rules of publishing and hitting prefixes, on examples by hand."""

from __future__ import annotations

import msgspec

from racegate.scenario.settings import CacheMode, EngineSpec
from racegate_reference.blocks import NO_HIT, Blocks, Hit, Pool, Tables

NONE = EngineSpec(block_size=2, blocks=8, state_blocks=8, draft_len_max=1, model_len_max=12)
# Two attention blocks to an interval of four tokens.
ALIGN = EngineSpec(
    block_size=2,
    blocks=10,
    state_blocks=10,
    state_interval=4,
    draft_len_max=1,
    model_len_max=16,
    cache_mode=CacheMode.ALIGN,
)
TOKENS = (10, 11, 12, 13, 14, 15, 16, 17, 18)


def admitted(blocks: Blocks, tokens: tuple[int, ...], end: int) -> Tables:
    tables = blocks.admit(blocks.hit(tokens), end)
    assert tables is not None
    return tables


def test_the_free_list_is_first_in_first_out() -> None:
    pool = Pool(6)
    assert pool.free == (1, 2, 3, 4, 5)
    assert pool.take(2) == [1, 2]
    pool.release(2)
    pool.release(1)
    assert pool.free == (3, 4, 5, 2, 1)
    assert pool.take(4) == [3, 4, 5, 2]


def test_the_last_holder_frees_a_block() -> None:
    pool = Pool(3)
    (block,) = pool.take(1)
    pool.publish(block, (1, 2))
    pool.share(block)
    pool.release(block)
    assert pool.free == (2,)
    pool.release(block)
    assert pool.free == (2, 1)


def test_a_published_block_stays_so_until_it_is_taken() -> None:
    pool = Pool(3)
    (block,) = pool.take(1)
    pool.publish(block, (1, 2))
    pool.release(block)
    assert pool.find((1, 2)) == block
    pool.share(block)
    assert pool.free == (2,)
    pool.release(block)
    assert pool.take(2) == [2, 1]
    assert pool.find((1, 2)) is None


def test_a_published_key_keeps_its_first_block() -> None:
    pool = Pool(4)
    first, second = pool.take(2)
    pool.publish(first, (1,))
    pool.publish(second, (1,))
    assert pool.find((1,)) == first
    pool.release(second)
    pool.release(first)
    # Taking the second block does not touch the key: the first one still has it.
    assert pool.take(2) == [3, 2]
    assert pool.find((1,)) == first


def test_none_holds_attention_blocks_ahead_and_state_blocks_once() -> None:
    blocks = Blocks(NONE)
    tables = admitted(blocks, TOKENS[:3], 3)
    # 3 tokens and 1 position ahead.
    assert (tables.attention, tables.state) == ([1, 2], [1, 2])
    assert blocks.extend(tables, 6)
    assert (tables.attention, tables.state) == ([1, 2, 3, 4], [1, 2])
    # Fewer tokens, after a rejection, take nothing back.
    assert blocks.extend(tables, 5)
    assert tables.attention == [1, 2, 3, 4]
    # Positions behind model_len_max need no block.
    assert blocks.extend(tables, 12)
    assert tables.attention == [1, 2, 3, 4, 5, 6]
    assert blocks.attention.free == (7,)


def test_blocks_return_in_reverse_order_of_the_tables() -> None:
    blocks = Blocks(NONE)
    tables = admitted(blocks, TOKENS, 5)
    blocks.release(tables)
    assert blocks.attention.free == (4, 5, 6, 7, 3, 2, 1)
    assert blocks.state.free == (3, 4, 5, 6, 7, 2, 1)
    assert (tables.attention, tables.state) == ([], [])


def test_too_few_blocks_of_one_pool_take_none_of_the_other() -> None:
    blocks = Blocks(EngineSpec(block_size=2, blocks=8, state_blocks=3, draft_len_max=1))
    admitted(blocks, TOKENS, 3)
    before = blocks.attention.free, blocks.state.free
    assert blocks.admit(NO_HIT, 3) is None
    assert (blocks.attention.free, blocks.state.free) == before


def test_publish_and_hit() -> None:
    blocks = Blocks(ALIGN)
    first = admitted(blocks, TOKENS, 9)
    # 9 tokens and 1 ahead: 5 attention blocks; 3 columns and 1 ahead: 4 state blocks.
    assert (first.attention, first.state) == ([1, 2, 3, 4, 5], [1, 2, 3, 4])
    blocks.publish(first, TOKENS, 8)
    # Only the boundary's own column, but all attention blocks up to it, are published.
    assert blocks.hit(TOKENS) == Hit(8, (1, 2, 3, 4), (2,))
    # One token must be left to compute, so a prompt of 8 tokens could only hit 4.
    assert blocks.hit(TOKENS[:8]) == NO_HIT
    # The token behind the prefix is part of the key.
    assert blocks.hit((*TOKENS[:8], 99)) == NO_HIT
    blocks.publish(first, TOKENS, 4)
    assert blocks.hit(TOKENS[:8]) == Hit(4, (1, 2), (1,))
    assert blocks.hit(TOKENS[:4]) == NO_HIT
    assert blocks.hit((*TOKENS[:8], 99)) == Hit(4, (1, 2), (1,))


def test_a_hit_leaves_a_token_to_compute_at_any_interval() -> None:
    blocks = Blocks(
        EngineSpec(
            block_size=1,
            state_interval=1,
            draft_len_max=1,
            cache_mode=CacheMode.ALIGN,
        )
    )
    first = admitted(blocks, TOKENS, 3)
    for boundary in (1, 2, 3):
        blocks.publish(first, TOKENS, boundary)
    assert [blocks.hit(TOKENS[:length]).length for length in (1, 2, 3, 4, 5)] == [0, 1, 2, 3, 3]


def test_a_hit_shares_blocks_and_leaves_columns_null() -> None:
    blocks = Blocks(ALIGN)
    first = admitted(blocks, TOKENS, 9)
    blocks.publish(first, TOKENS, 8)
    second = admitted(blocks, TOKENS, 9)
    assert second.attention == [1, 2, 3, 4, 6]
    # Columns 0 null, 1 shared, then cdiv(9, 4) + 1 - 2 new ones.
    assert second.state == [0, 2, 5, 6]
    blocks.release(first)
    assert blocks.attention.free == (7, 8, 9, 5)
    assert blocks.state.free == (7, 8, 9, 4, 3, 1)
    blocks.release(second)
    assert blocks.attention.free == (7, 8, 9, 5, 6, 4, 3, 2, 1)
    assert blocks.state.free == (7, 8, 9, 4, 3, 1, 6, 5, 2)
    # Without a holder they are still published, until somebody takes them.
    assert blocks.hit(TOKENS) == Hit(8, (1, 2, 3, 4), (2,))
    blocks.attention.take(6)
    assert blocks.hit(TOKENS) == NO_HIT


def test_free_hit_blocks_are_not_counted_twice() -> None:
    blocks = Blocks(ALIGN)
    first = admitted(blocks, TOKENS, 9)
    blocks.publish(first, TOKENS, 8)
    blocks.release(first)
    other = blocks.attention.take(4)
    assert blocks.attention.free == (5, 4, 3, 2, 1)
    # 4 of the 5 free blocks are the hit itself: one new block is there, two are not.
    hit = blocks.hit(TOKENS)
    assert hit.length == 8
    state_free = blocks.state.free
    assert blocks.admit(hit, 10) is None
    assert (blocks.attention.free, blocks.state.free) == ((5, 4, 3, 2, 1), state_free)
    second = blocks.admit(hit, 9)
    assert second is not None
    assert second.attention == [1, 2, 3, 4, 5]
    assert other == [6, 7, 8, 9]


def test_with_a_state_in_every_block_full_columns_stand_before_the_running_ones() -> None:
    blocks = Blocks(msgspec.structs.replace(ALIGN, cache_mode=CacheMode.ALL, blocks=20))
    first = admitted(blocks, TOKENS, 8)
    # Two full columns, the one behind them, and one for the draft.
    assert first.state == [1, 2, 3, 4]
    assert blocks.extend(first, 11)
    assert first.state == [1, 2, 3, 4]
    assert blocks.extend(first, 12)
    assert first.state == [1, 2, 3, 4, 5]
    for boundary in (4, 8):
        blocks.publish(first, TOKENS, boundary)
    # A hit ends at any of them.
    assert admitted(blocks, (*TOKENS[:7], 99), 8).state == [1, 6, 7, 8]
