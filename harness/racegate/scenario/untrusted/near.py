"""Near names: what somebody may have meant who named something that is not there."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher

from racegate.scenario.untrusted.text import printable

NEAREST = 3
# Comparing two texts costs as much as both lengths: of a longer one the beginning says enough.
COMPARED_LENGTH_MAX = 100


# Less of a word than this in a name is chance.
SHARE_MIN = 0.4


def nearest(
    words: Iterable[str],
    names: Iterable[str],
    *,
    count: int = NEAREST,
    share_min: float = 0.0,
) -> list[str]:
    """The names that have most in common with any of the words, the nearest first.

    share_min: of a word that has to be in a name in one piece
    """
    asked = [word[:COMPARED_LENGTH_MAX].lower() for word in words]

    def likeness(name: str) -> tuple[float, float]:
        """What is in the name in one piece, as a share of the word; then how like they are."""
        there = name[:COMPARED_LENGTH_MAX].lower()
        matchers = [(SequenceMatcher(None, word, there), len(word)) for word in asked if word]
        return max(
            ((m.find_longest_match().size / length, m.ratio()) for m, length in matchers),
            default=(0.0, 0.0),
        )

    alike = [name for name in sorted(set(names)) if likeness(name)[0] >= share_min]
    return sorted(alike, key=likeness, reverse=True)[:count]


def near_it(word: str, names: Iterable[str], *, share_min: float = SHARE_MIN) -> str:
    """`; near it: A, B`, as the end of a message; empty where there is none like it."""
    found = ", ".join(map(printable, nearest([word], names, share_min=share_min)))
    return f"; near it: {found}" if found else ""
