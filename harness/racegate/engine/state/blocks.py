"""Block pools with published (prefix-cached) blocks. DEFINITION section 5, Blocks and align."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Sequence

import msgspec

from racegate.scenario.spec import Image

NULL_BLOCK = 0

Key = tuple[Hashable, ...]  # what a published block's content depends on


def keyed(tokens: Sequence[int], images: Sequence[Image]) -> Key:
    """Tokens as keys have them: one of an image with its grid, and its place there."""
    if not images:
        return tuple(tokens)
    elements: list[Hashable] = list(tokens)
    for image in images:
        of_image = tokens[image.start : image.start + image.tokens]
        for place, token in enumerate(of_image):
            elements[image.start + place] = (token, image.grid, place)
    return tuple(elements)


class PoolView(msgspec.Struct, frozen=True, gc=False):
    """Some blocks of a pool at one moment. blocks: which, ascending; holder_counts: of each"""

    blocks: tuple[int, ...]
    holder_counts: tuple[int, ...]
    free: frozenset[int]
    published: frozenset[int]

    def holders(self, block: int) -> int:
        """How many requests hold a block."""
        place = bisect_left(self.blocks, block)
        assert self.blocks[place : place + 1] == (block,), f"block {block} was not looked at"
        return self.holder_counts[place]

    def is_free(self, block: int) -> bool:
        """Whether the block may be taken."""
        return block in self.free

    def is_published(self, block: int) -> bool:
        """Whether the block may be hit."""
        return block in self.published


class BlockPool:
    """Blocks 1 .. count - 1; the free list is first in, first out; a free block may still be
    published.
    """

    def __init__(self, count: int) -> None:
        self._free: dict[int, None] = dict.fromkeys(range(1, count))  # ordered, O(1) removal
        self._holders = [0] * count
        self._block_of: dict[Key, int] = {}
        self._key_of: dict[int, Key] = {}

    @property
    def free_count(self) -> int:
        """Blocks that may be taken."""
        return len(self._free)

    def view(self, blocks: Iterable[int]) -> PoolView:
        """Some blocks as they are now."""
        viewed = tuple(sorted(blocks))
        return PoolView(
            viewed,
            tuple([self._holders[block] for block in viewed]),
            frozenset([block for block in viewed if block in self._free]),
            frozenset([block for block in viewed if block in self._key_of]),
        )

    def free_without(self, shared: Sequence[int]) -> int:
        """Free blocks that remain when some published ones are taken out of the free list."""
        return len(self._free) - sum(block in self._free for block in shared)

    def take(self, count: int) -> list[int]:
        """`count` blocks for new content; so many must be free."""
        assert count <= len(self._free), f"{count} blocks are wanted, {len(self._free)} are free"
        return [self._take_first() for _ in range(count)]

    def _take_first(self) -> int:
        block = next(iter(self._free))
        del self._free[block]
        self._holders[block] = 1
        key = self._key_of.pop(block, None)
        if key is not None:
            del self._block_of[key]
        return block

    def find(self, key: Key) -> int | None:
        """The block published under a key."""
        return self._block_of.get(key)

    def share(self, blocks: Sequence[int]) -> None:
        """One more holder of each of some published blocks."""
        for block in blocks:
            self._free.pop(block, None)
            self._holders[block] += 1

    def publish(self, key: Key, block: int) -> None:
        """A key already published keeps its first block, a block keeps its first key."""
        assert self._holders[block] > 0, f"block {block} is published without a holder"
        if key not in self._block_of and block not in self._key_of:
            self._block_of[key] = block
            self._key_of[block] = key

    def release(self, table: Sequence[int]) -> None:
        """Drops one holder of every block of a table, last column first."""
        for block in reversed(table):
            if block == NULL_BLOCK:
                continue
            self._holders[block] -= 1
            assert self._holders[block] >= 0, f"block {block} is freed twice"
            if self._holders[block] == 0:
                self._free[block] = None
