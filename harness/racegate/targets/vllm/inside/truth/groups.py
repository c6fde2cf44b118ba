"""Where a token's keys and values stand, and a request's states: by groups of layers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from racegate.targets.vllm.inside.truth.course import RequestStep, ScriptedModel


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


def shared_blocks(
    rows: Iterable[RequestStep], groups: Sequence[GroupTable], says: ScriptedModel
) -> Iterator[tuple[str, int]]:
    """Blocks that are two requests' of a step, with whose they are, but for those of a prefix that
    the two have in common.
    """
    owners: dict[int, RequestStep] = {}
    for row in rows:
        for group, blocks in enumerate(row.blocks):
            for at, block in enumerate(blocks):
                other = owners.setdefault(block, row)
                places = range((at + 1) * groups[group].size)
                if block and other is not row and not _is_common(row, other, places, says):
                    yield f"of request {row.request} and request {other.request}", block


def _is_common(
    one: RequestStep, other: RequestStep, places: Sequence[int], says: ScriptedModel
) -> bool:
    return all(says.token_at(one.index, p) == says.token_at(other.index, p) for p in places)
