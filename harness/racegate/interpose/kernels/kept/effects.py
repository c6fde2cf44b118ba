"""What launches of kernels did, found again by what they loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import msgspec

from racegate.interpose.kernels.kept.calls import Places

_CALLS_MAX = 4096  # different contents that are kept of one call: a loop makes it once a step
_SMALL_BYTES = 64

LinesRun: TypeAlias = dict[str, tuple[int, ...]]  # by file


class LaunchEffect(msgspec.Struct, frozen=True, array_like=True):
    """One launch. inputs: what it loaded, atomically or not; found: a digest of what stood there,
    and first of what stood in the small ones alone
    reads, writes: its footprint; written: what stands in the latter behind it, compressed: rows of
    logits are large, and mostly alike
    is_vouched: it was judged, and nothing was found in it
    lines: that it ran, None if nobody noted them
    """

    inputs: Places
    first: bytes
    found: bytes
    reads: Places
    writes: Places
    written: bytes
    is_vouched: bool = False
    lines: LinesRun | None = None


class KnownLaunches:
    """Effects of the launches of one call, by what they loaded. What a launch loads depends on
    counts and indices, which are small: few of its rows, which are large, need be looked at.
    """

    def __init__(self) -> None:
        # By the places of their small inputs and a digest of these; then by those of all.
        self._by_first: dict[Places, dict[bytes, dict[Places, dict[bytes, LaunchEffect]]]] = {}
        self._number = 0

    def same(self, effect: LaunchEffect) -> LaunchEffect | None:
        """The one that loaded the same."""
        by_contents = self._by_first.get(small(effect.inputs), {}).get(effect.first, {})
        return by_contents.get(effect.inputs, {}).get(effect.found)

    def add(self, effect: LaunchEffect) -> bool:
        """Whether it is kept, in place of the one that loaded the same: so many are of a call."""
        is_new = self.same(effect) is None
        if is_new and self._number == _CALLS_MAX:
            return False
        self._number += is_new
        by_first = self._by_first.setdefault(small(effect.inputs), {})
        by_first.setdefault(effect.first, {}).setdefault(effect.inputs, {})[effect.found] = effect
        return True

    def at(self, found: Callable[[Places], bytes | None]) -> Iterator[LaunchEffect]:
        """Those for which found has the digest of what stands in their inputs; None: no memory"""
        for few, by_first in self._by_first.items():
            for inputs, effects in by_first.get(found(few) or b"", {}).items():
                effect = effects.get(found(inputs) or b"")
                if effect is not None:
                    yield effect


def small(places: Places) -> Places:
    """Those that hold counts and indices."""
    return tuple(place for place in places if place[2] <= _SMALL_BYTES)


def with_known(effect: LaunchEffect, known: LaunchEffect) -> LaunchEffect:
    """A launch of the same bytes as a known one, with what is known of that too."""
    return msgspec.structs.replace(
        effect,
        is_vouched=effect.is_vouched or known.is_vouched,
        lines=known.lines if effect.lines is None else effect.lines,
    )
