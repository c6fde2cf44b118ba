"""The block tables of requests: growth, prefix hits, publication. DEFINITION section 5, Blocks and
align.
"""

from __future__ import annotations

from collections.abc import Callable

from racegate.engine.state.blocks import NULL_BLOCK, BlockPool, Key, keyed
from racegate.engine.state.plan import PlanEntry
from racegate.engine.state.sizes import ceil_div
from racegate.engine.state.tracked import Tracked
from racegate.scenario.settings import CacheMode, EngineSpec


class BlockTables:
    """Gives blocks of the attention and the state pool to requests."""

    def __init__(self, engine: EngineSpec, *, reserved: Callable[[Tracked], int]) -> None:
        self._engine = engine
        self._reserved = reserved
        self._has_columns = engine.cache_mode.has_columns
        self._is_offload = engine.cache_mode is CacheMode.OFFLOAD
        self._is_all = engine.cache_mode is CacheMode.ALL
        self._saved: dict[Key, None] = {}
        self.attention = BlockPool(engine.blocks)
        self.state = BlockPool(engine.state_blocks)

    def grow(self, tracked: Tracked, tokens: int) -> bool:
        """Blocks for `tokens` more inputs of a running request; False takes nothing."""
        blocks, state_blocks = self._needed(self._reserved(tracked), tokens)
        blocks = max(0, blocks - len(tracked.blocks))
        state_blocks = max(0, state_blocks - len(tracked.state_blocks))
        if blocks > self.attention.free_count or state_blocks > self.state.free_count:
            return False
        self._take(tracked, blocks, state_blocks)
        return True

    def _take(self, tracked: Tracked, blocks: int, state_blocks: int) -> None:
        """So many new blocks at the ends of a request's tables."""
        tracked.fresh_blocks = self.attention.take(blocks)
        tracked.fresh_state_blocks = self.state.take(state_blocks)
        tracked.blocks += tracked.fresh_blocks
        tracked.state_blocks += tracked.fresh_state_blocks

    def hit_length(self, tracked: Tracked) -> int:
        """Tokens of the longest published or saved prefix (0 without prefix caching)."""
        if not self._has_columns:
            return 0
        interval = self._engine.state_interval
        longest = (len(tracked.tokens) - 1) // interval * interval
        for length in range(longest, 0, -interval):
            if self._is_known(tracked, length):
                return length
        return 0

    def _is_known(self, tracked: Tracked, length: int) -> bool:
        if self._is_offload:
            return _key(tracked)[: length + 1] in self._saved
        return self._hit_blocks(tracked, length) is not None

    def admit(self, tracked: Tracked, tokens: int) -> bool:
        """Tables of a request admitted with `tracked.computed` published or saved tokens; False
        takes nothing.
        """
        shared: list[int] = []
        state_table: list[int] = []
        if tracked.computed > 0:
            columns = tracked.computed // self._engine.state_interval
            state_table = [NULL_BLOCK] * (columns - 1)
            if not self._is_offload:
                hit = self._hit_blocks(tracked, tracked.computed)
                assert hit is not None
                shared, state_block = hit
                state_table.append(state_block)
        blocks, state_blocks = self._needed(tracked.computed, tokens)
        blocks -= len(shared)
        state_blocks -= len(state_table)
        if blocks > self.attention.free_without(shared):
            return False
        held = [block for block in state_table if block != NULL_BLOCK]
        if state_blocks > self.state.free_without(held):
            return False
        self.attention.share(shared)
        self.state.share(held)
        tracked.blocks, tracked.state_blocks = shared, state_table
        tracked.loaded = tracked.computed if self._is_offload else 0
        self._take(tracked, blocks, state_blocks)
        return True

    def publish(self, tracked: Tracked, entry: PlanEntry, *, accepted: int) -> None:
        """Publishes the boundary that a processed frame crossed, if its state was kept; offload:
        the prefix that a prefill chunk saved; all: every boundary that it crossed.
        """
        if not self._has_columns:
            return
        end, interval = tracked.settled, self._engine.state_interval
        stayed = entry.tokens if entry.is_discarded else entry.tokens - entry.drafts - 1 + accepted
        boundary = end // interval * interval
        if self._is_all:
            for crossed in range((end - stayed) // interval + 1, end // interval + 1):
                self._publish_boundary(tracked, crossed * interval)
            return
        if boundary <= end - stayed or not (entry.is_decode or boundary == end):
            return
        if not self._is_offload:
            self._publish_boundary(tracked, boundary)
        elif entry.is_discarded:
            self._save(_key(tracked)[: boundary + 1])

    def _save(self, key: Key) -> None:
        """Where memory is bounded, what came first gives way."""
        most = self._engine.prefixes_max
        self._saved.setdefault(key)
        if most is not None and len(self._saved) > most:
            del self._saved[next(iter(self._saved))]

    def lose(self, tracked: Tracked) -> None:
        """What a request was to be loaded with is not there: nobody is to hit it again."""
        del self._saved[_key(tracked)[: tracked.loaded + 1]]
        tracked.loaded = 0
        self.release(tracked)

    @property
    def saved(self) -> frozenset[Key] | None:
        """The prefixes that host memory is to hold; None where nothing bounds it."""
        return None if self._engine.prefixes_max is None else frozenset(self._saved)

    def _publish_boundary(self, tracked: Tracked, boundary: int) -> None:
        """The state at a boundary, and the attention blocks up to it."""
        key, size = _key(tracked), self._engine.block_size
        column = boundary // self._engine.state_interval - 1
        self.state.publish(key[: boundary + 1], tracked.state_blocks[column])
        for index in range(boundary // size):
            self.attention.publish(key[: (index + 1) * size + 1], tracked.blocks[index])

    def release(self, tracked: Tracked) -> None:
        """Gives all blocks of a request back."""
        self.attention.release(tracked.blocks)
        self.state.release(tracked.state_blocks)
        tracked.blocks, tracked.fresh_blocks = [], []
        tracked.state_blocks, tracked.fresh_state_blocks = [], []

    def _needed(self, computed: int, tokens: int) -> tuple[int, int]:
        """Table lengths that hold the inputs and, for attention, the drafter's look-ahead."""
        engine = self._engine
        most = min(computed + tokens + engine.draft_len_max, engine.model_len_max)
        blocks = ceil_div(most, engine.block_size)
        columns, end = 1, computed + tokens
        if self._is_all:
            columns = end // engine.state_interval + 1
        elif self._has_columns:
            columns = ceil_div(end, engine.state_interval)
        return blocks, columns + engine.draft_len_max

    def _hit_blocks(self, tracked: Tracked, length: int) -> tuple[list[int], int] | None:
        """Published attention blocks and the state block of a prefix of `length` tokens."""
        key = _key(tracked)
        state_block = self.state.find(key[: length + 1])
        if state_block is None:
            return None
        size = self._engine.block_size
        shared = [self.attention.find(key[: end + 1]) for end in range(size, length + 1, size)]
        if any(block is None for block in shared):
            return None
        return [block for block in shared if block is not None], state_block


def _key(tracked: Tracked) -> Key:
    """Whose beginnings are the keys of a request's prefixes."""
    return keyed(tracked.tokens, tracked.request.images)
