"""What ranks do wrong together, as data: no two accesses race, and yet the program is wrong."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from racegate.history.finding import FindingKind, Stack, place_name
from racegate.interpose.ranks.group.kinds import rank_name


class RankPlace(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank has to do with it. rank: its number; what: in words; stack: where, innermost
    first
    """

    rank: int
    what: str
    stack: Stack = ()


class RankFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that ranks do wrong together.

    kind: MISMATCH: at one number of a communicator ranks issue different operations, or not all of
        them issue one; DEADLOCK: ranks wait for what cannot come; ORDER: two ranks issue operations
        of two communicators in opposite orders, which a GPU may or may not survive; DIVERGENCE: a
        value that all ranks are to have differs
    signature: the same in every run, and when lines move; title: what it is about, in words
    places: of all ranks; hint: what is known besides, in words
    """

    kind: FindingKind
    signature: str
    title: str
    places: tuple[RankPlace, ...]
    hint: str = ""

    @property
    def message(self) -> str:
        """In words, on several lines."""
        told = [f"{rank_name(one.rank)} {one.what}{_at(one.stack)}" for one in self.places]
        return "\n".join([self.title, *told, *([self.hint] if self.hint else [])])


def _at(stack: Stack) -> str:
    return f", at {place_name(stack)}" if stack else ""


def rank_finding(
    kind: FindingKind, title: str, places: Sequence[RankPlace], *, hint: str = "", about: str = ""
) -> RankFinding:
    """A finding with its signature: by its kind, the functions in which the ranks stand, and the
    name of the value that it is about.
    """
    where = [f"{file.rpartition('/')[2]}:{name}" for one in places for file, _, name in one.stack]
    text = "\n".join((kind, *where, about))
    return RankFinding(
        kind=kind,
        signature=hashlib.sha256(text.encode()).hexdigest()[:12],
        title=title,
        places=tuple(places),
        hint=hint,
    )
