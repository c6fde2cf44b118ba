"""Orders that go through another rank: what one rank's own edges do not say.

A collective on one stream of a rank may come before one on another stream, because another rank
orders the two. Each rank tells what its collectives order and what its conflicts consist of; a
search over the operations of all ranks finds the conflicts that are none.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from racegate.interpose.ranks.group.collectives import GroupOperation
from racegate.order.clocks import Clock
from racegate.order.memory import Access

GroupKey = tuple[int, int, int, int]  # communicator, pair of ranks or -1 and -1, number


class GroupStep(msgspec.Struct, frozen=True, array_like=True):
    """What a rank issued together. gives, takes: its operations by key, if what comes behind them
    on another rank comes behind what stands before them here, or the other way round

    clock: what comes before it, itself included
    """

    lane: int
    number: int
    clock: tuple[int, ...]
    gives: tuple[GroupKey, ...]
    takes: tuple[GroupKey, ...]


class UnorderedPair(msgspec.Struct, frozen=True, array_like=True):
    """Two accesses that a rank's own edges do not order. first, second: their lanes and numbers

    clock: what comes before the second, itself included
    """

    labels: tuple[str, str]
    first: tuple[int, int]
    second: tuple[int, int]
    clock: tuple[int, ...]


class RankOrder(msgspec.Struct):
    """What one rank has to say, in the order of its run."""

    steps: list[GroupStep] = []
    pairs: list[UnorderedPair] = []

    def issued(
        self,
        operations: Sequence[GroupOperation],
        numbers: Sequence[int],
        *,
        lane: int,
        number: int,
        clock: Clock,
    ) -> None:
        """Operations were put on a stream."""
        keys = [(one.comm, *one.pair, at) for one, at in zip(operations, numbers, strict=True)]
        sides = list(zip(operations, keys, strict=True))
        gives = tuple(key for operation, key in sides if operation.gives_order)
        takes = tuple(key for operation, key in sides if operation.takes_order)
        self.steps.append(GroupStep(lane, number, tuple(clock), gives, takes))

    def raced(self, first: Access, second: Access, clock: Clock) -> None:
        """Two accesses have no order here. clock: of the second one's lane"""
        labels = (first.label, second.label)
        places = ((first.lane, first.number), (second.lane, second.number))
        self.pairs.append(UnorderedPair(labels, *places, tuple(clock)))
