"""What a run of several ranks gave, as data: written by the process that led it."""

from __future__ import annotations

import msgspec

from racegate.history.finding import Stack
from racegate.history.schedule import Holds
from racegate.interpose.ranks.group.findings import RankFinding


class RankEnding(msgspec.Struct, frozen=True, kw_only=True):
    """How one rank ended.

    rank: its number; below 0 of a process that is no rank, -1 of the program's own
    code: of its process, negative for a signal; outcome: what it wrote, empty if it wrote nothing
    ordered: the labels of pairs that other ranks order; stood: where its threads stood, if it was
    stopped
    """

    rank: int
    code: int
    outcome: msgspec.Raw
    ordered: tuple[tuple[str, str], ...] = ()
    stood: tuple[Stack, ...] = ()


class RanksOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How all of them ended, and what they did wrong together. is_stopped: the run did not come to
    its end by itself; is_hanging: because it stood still, for a reason that nobody sees
    lost: how many processes that the program started ended without a word
    holds: under which they ran, of all ranks
    """

    ranks: tuple[RankEnding, ...]
    findings: tuple[RankFinding, ...] = ()
    is_stopped: bool = False
    is_hanging: bool = False
    lost: int = 0
    holds: Holds = ()
