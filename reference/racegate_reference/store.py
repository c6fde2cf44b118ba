"""The store of saved prefixes outside the pools (DEFINITION section 5, offload)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from racegate_reference.blocks import Key


class Store:
    """Which prefixes are saved: the last `most` that came in, if there is a bound.

    States and cache entries follow from the tokens of a key, of which the last one is the token
    behind the prefix. So the keys are all there is to keep.
    """

    def __init__(self, interval: int, most: int | None = None) -> None:
        self._interval, self._most = interval, most
        self._keys: dict[Key, None] = {}

    @property
    def keys(self) -> tuple[Key, ...]:
        """The keys in the order in which they came in."""
        return tuple(self._keys)

    def save(self, tokens: Sequence[Hashable], boundary: int) -> None:
        """Saves the prefix of `boundary` tokens, of which `tokens` has at least one more."""
        self._keys.setdefault(tuple(tokens[: boundary + 1]))
        if self._most is not None and len(self._keys) > self._most:
            del self._keys[next(iter(self._keys))]

    def drop(self, tokens: Sequence[Hashable], boundary: int) -> None:
        """The prefix of `boundary` tokens is not to be hit again."""
        del self._keys[tuple(tokens[: boundary + 1])]

    def longest(self, tokens: Sequence[Hashable]) -> int:
        """The length of the longest saved prefix that leaves a token to compute, or 0."""
        interval = self._interval
        for length in range((len(tokens) - 1) // interval * interval, 0, -interval):
            if tuple(tokens[: length + 1]) in self._keys:
                return length
        return 0
