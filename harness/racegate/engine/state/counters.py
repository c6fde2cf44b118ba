"""Counters: what a run exercised. A run that exercised nothing is not a pass."""

from __future__ import annotations

from racegate.scenario.expect import Expect

# What only the trace or the observations of a run tell, not the engine.
_SEEN_IN_RUN = frozenset({"overlapped_ops", "missing_drafts", "mrope_drifts"})


class Counters:
    """Counted while the engine runs; the names are those of scenario.Expect."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        names = Expect.__struct_fields__
        self.counts = dict.fromkeys((name for name in names if name not in _SEEN_IN_RUN), 0)

    def add(self, name: str, count: int = 1) -> None:
        """So many more. Raises KeyError for a name that a scenario could not expect."""
        self.counts[name] += count
