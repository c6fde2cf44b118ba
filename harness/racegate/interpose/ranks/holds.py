"""Holds of a program of ranks: `all_reduce@train.py:step#3 of rank 1 until forced`."""

from __future__ import annotations

import re

import msgspec

from racegate.history.schedule import FORCED, Hold, Holds
from racegate.interpose.ranks.group.kinds import MAIN, rank_name

_OF_RANK = re.compile(r"(?P<label>.+) of rank (?P<rank>\d+)$")


def of_rank(label: str, rank: int) -> str:
    """What an operation or access of a rank is called where all of them are told of. rank: below 0
    of a process that is none; the program's own needs no name
    """
    return label if rank == MAIN else f"{label} of {rank_name(rank)}"


def split_rank(label: str) -> tuple[str, int | None]:
    """The label as its rank has it, and the rank; None: of whichever."""
    match = _OF_RANK.match(label)
    return (label, None) if match is None else (match["label"], int(match["rank"]))


def rank_of(hold: Hold) -> int | None:
    """The rank whose operation is held; None: that of each."""
    return split_rank(hold.op)[1]


def holds_of(rank: int, holds: Holds) -> Holds:
    """What a rank itself is to hold, as it calls it."""
    return tuple(_own(hold) for hold in holds if rank_of(hold) in (None, rank))


def _own(hold: Hold) -> Hold:
    until = hold.until if hold.until == FORCED else split_rank(hold.until)[0]
    return msgspec.structs.replace(hold, op=split_rank(hold.op)[0], until=until)
