"""Blocks: two pools, block tables, and published prefixes (DEFINITION section 5)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from racegate.scenario.settings import CacheMode, EngineSpec

NULL_BLOCK = 0
Key = tuple[Hashable, ...]


def cdiv(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(-a // b)


class Pool:
    """Blocks 1 .. count - 1: each is free, or held by one or more requests.

    A block may be published under a key; it stays so while it is free, until it is taken.
    """

    def __init__(self, count: int) -> None:
        self._free = OrderedDict.fromkeys(range(1, count))
        self._holders = dict.fromkeys(range(1, count), 0)
        self._published: dict[Key, int] = {}
        self._keys: dict[int, Key] = {}

    @property
    def free(self) -> tuple[int, ...]:
        """The free list, next block first."""
        return tuple(self._free)

    def has_free(self, count: int, *, besides: Iterable[int] = ()) -> bool:
        """Whether `count` blocks can be taken once the blocks `besides` are held."""
        return count <= len(self._free) - sum(block in self._free for block in besides)

    def take(self, count: int) -> list[int]:
        """The next `count` free blocks, for new content."""
        blocks = [self._free.popitem(last=False)[0] for _ in range(count)]
        for block in blocks:
            self._holders[block] = 1
            key = self._keys.pop(block, None)
            if key is not None:
                del self._published[key]
        return blocks

    def share(self, block: int) -> None:
        """One more holder of a published block, which keeps its content."""
        self._free.pop(block, None)
        self._holders[block] += 1

    def release(self, block: int) -> None:
        """One holder less; the last one puts the block at the end of the free list."""
        self._holders[block] -= 1
        if self._holders[block] == 0:
            self._free[block] = None

    def publish(self, block: int, key: Key) -> None:
        """Makes the block's content known under the key, unless the key has a block."""
        if key not in self._published:
            self._published[key] = block
            self._keys[block] = key

    def find(self, key: Key) -> int | None:
        """The block published under the key."""
        return self._published.get(key)


@dataclass(slots=True, eq=False)
class Tables:
    """A request's blocks: attention by position // block_size, state by column."""

    attention: list[int] = field(default_factory=list)
    state: list[int] = field(default_factory=list)


class Hit(msgspec.Struct, frozen=True):
    """A prefix that need not be computed: its length in tokens.

    attention, state: the published blocks that hold it; none if it is loaded into new blocks.
    """

    length: int = 0
    attention: tuple[int, ...] = ()
    state: tuple[int, ...] = ()


NO_HIT = Hit()


class Blocks:
    """Gives and takes the blocks of all requests."""

    def __init__(self, engine: EngineSpec) -> None:
        self._engine = engine
        self._publishes = engine.cache_mode.publishes
        self.attention = Pool(engine.blocks)
        self.state = Pool(engine.state_blocks)

    def admit(self, hit: Hit, end: int) -> Tables | None:
        """Tables of a request that starts behind a hit and computes up to `end` tokens.

        None, and nothing changed, if too few blocks are free.
        """
        # The columns before the hit's last one are never read: nothing holds them.
        nulls = [NULL_BLOCK] * max(0, hit.length // self._engine.state_interval - 1)
        tables = Tables(list(hit.attention), nulls + list(hit.state))
        if not self._can_extend(tables, end, hit):
            return None
        for block in hit.attention:
            self.attention.share(block)
        for block in hit.state:
            self.state.share(block)
        self._extend(tables, end)
        return tables

    def extend(self, tables: Tables, end: int) -> bool:
        """Adds the blocks needed to compute up to `end` tokens; False, and nothing, if too few."""
        if not self._can_extend(tables, end, NO_HIT):
            return False
        self._extend(tables, end)
        return True

    def release(self, tables: Tables) -> None:
        """Frees all blocks of the tables, which are empty afterwards."""
        for pool, table in ((self.attention, tables.attention), (self.state, tables.state)):
            for block in reversed(table):
                if block != NULL_BLOCK:
                    pool.release(block)
            table.clear()

    def hit(self, tokens: Sequence[Hashable]) -> Hit:
        """The longest published prefix that leaves at least one token to compute."""
        if not self._publishes:
            return NO_HIT
        interval = self._engine.state_interval
        for length in range((len(tokens) - 1) // interval * interval, 0, -interval):
            state = self.state.find(tuple(tokens[: length + 1]))
            attention = [
                self.attention.find(key) for _, key in self._attention_keys(tokens, length)
            ]
            if state is not None and None not in attention:
                return Hit(length, tuple(b for b in attention if b is not None), (state,))
        return NO_HIT

    def publish(self, tables: Tables, tokens: Sequence[Hashable], boundary: int) -> None:
        """Publishes the state at a boundary, and the attention blocks up to it."""
        column = boundary // self._engine.state_interval - 1
        self.state.publish(tables.state[column], tuple(tokens[: boundary + 1]))
        for index, key in self._attention_keys(tokens, boundary):
            self.attention.publish(tables.attention[index], key)

    def _attention_keys(self, tokens: Sequence[Hashable], end: int) -> list[tuple[int, Key]]:
        """Table index and key of the attention blocks that end at or before `end`.

        A key has one token more than its block ends with: the drafter's last entry depends on it.
        """
        size = self._engine.block_size
        return [(i, tuple(tokens[: (i + 1) * size + 1])) for i in range(end // size)]

    def _missing(self, tables: Tables, end: int) -> tuple[int, int]:
        """How many attention and state blocks to add to compute up to `end` tokens."""
        engine, k = self._engine, self._engine.draft_len_max
        attention = cdiv(min(end + k, engine.model_len_max), engine.block_size)
        match engine.cache_mode:
            case CacheMode.NONE:
                columns = 1
            case CacheMode.ALL:
                columns = end // engine.state_interval + 1
            case CacheMode.ALIGN | CacheMode.OFFLOAD:
                columns = cdiv(end, engine.state_interval)
        state = columns + k
        return max(0, attention - len(tables.attention)), max(0, state - len(tables.state))

    def _can_extend(self, tables: Tables, end: int, hit: Hit) -> bool:
        attention, state = self._missing(tables, end)
        return self.attention.has_free(attention, besides=hit.attention) and self.state.has_free(
            state, besides=hit.state
        )

    def _extend(self, tables: Tables, end: int) -> None:
        attention, state = self._missing(tables, end)
        tables.attention += self.attention.take(attention)
        tables.state += self.state.take(state)
