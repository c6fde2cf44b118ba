"""How much a program has given its device, so that a run without any is not taken for a pass."""

from __future__ import annotations

from mmap import mmap

_OWN, _OF_CHILDREN = 0, 1
_BYTES = 16


class GivenWork:
    """Operations, memory and accesses of pinned memory, counted: those of the process of the run,
    and those of processes that it forked, which are computed and not judged.
    """

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Nothing is given yet: a run begins in this process."""
        self._counts = memoryview(mmap(-1, _BYTES)).cast("Q")  # shared with what is forked
        self._whose = _OWN

    def leave(self) -> None:
        """This is a forked child."""
        self._whose = _OF_CHILDREN

    def add(self) -> None:
        """One more."""
        self._counts[self._whose] += 1

    @property
    def own(self) -> int:
        """What the process of the run gave the device."""
        return self._counts[_OWN]

    @property
    def of_children(self) -> int:
        """What forked children gave it."""
        return self._counts[_OF_CHILDREN]
