"""Where a token's keys and values stand, and a request's states: by groups of layers."""

from __future__ import annotations

from dataclasses import dataclass

from racegate.targets.vllm.inside.truth.course import RequestStep


@dataclass(frozen=True, slots=True)
class GroupTable:
    """Layers that share a block table.

    size: tokens of a block; is_state: its blocks have recurrent states
    moves: a state is in the block of its last token, not in the request's first one
    is_window: blocks before the last ones are given back, which tables may still have
    """

    size: int
    is_state: bool
    moves: bool
    is_window: bool = False

    def slot(self, row: RequestStep, group: int, place: int) -> int | None:
        """Where the keys and values of the token at a place stand; None if it has no block."""
        blocks, at = row.blocks[group], place // self.size
        return blocks[at] * self.size + place % self.size if at < len(blocks) else None

    def states(self, row: RequestStep, group: int, count: int) -> list[int]:
        """The blocks of the request's state, and of those behind its drafts."""
        first = max(row.end - 1, 0) // self.size if self.moves else 0
        return list(row.blocks[group][first : first + count])

    def table(self, row: RequestStep, group: int) -> list[int]:
        """The entries of its block table that the step needs."""
        if self.is_state or self.is_window:
            return []
        return list(row.blocks[group][: -(-row.end // self.size)])
