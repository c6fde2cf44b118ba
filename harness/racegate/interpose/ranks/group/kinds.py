"""The kinds of operations of NCCL, and which labels are theirs: no torch is needed for these."""

from __future__ import annotations

from enum import IntEnum

MAIN = -1  # the number of the program's own process, where its ranks are processes that it starts


def rank_name(rank: int) -> str:
    """In words. rank: below 0 of a process that is none"""
    if rank >= 0:
        return f"rank {rank}"
    return "the main process" if rank == MAIN else f"process {MAIN - rank}"


class CollectiveKind(IntEnum):
    """As native/nccl.c numbers them."""

    ALL_REDUCE = 1
    BROADCAST = 2
    REDUCE = 3
    ALL_GATHER = 4
    REDUCE_SCATTER = 5
    ALL_TO_ALL = 6
    GATHER = 7
    SCATTER = 8
    SEND = 9
    RECV = 10

    @property
    def word(self) -> str:
        """As torch calls it."""
        return self.name.lower()

    @property
    def is_point_to_point(self) -> bool:
        """Whether two ranks alone take part."""
        return self in (CollectiveKind.SEND, CollectiveKind.RECV)


GROUP = "send/recv group"  # messages that were issued together


def is_collective(label: str) -> bool:
    """Whether an operation, by its label, is one of NCCL."""
    kind = label.partition("@")[0]
    return kind == GROUP or kind in {one.word for one in CollectiveKind}
