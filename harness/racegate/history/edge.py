"""Edge: one ordering the engine must keep, with a name and a reason."""

from __future__ import annotations

from racegate.scenario.strict import StrictStruct


class Edge(StrictStruct, frozen=True, kw_only=True):
    """A named wait.

    name: unique, also how a fault names the edge it drops
    before, after: what must come first and what may only follow, as readers of a report should see
        it
    buffers: the buffers whose accesses this edge orders, as patterns
    first, second: names of operations and host actions on its two sides, as patterns: which of the
        edges on a buffer a pair of accesses is missing
    reason: what goes wrong without it
    """

    name: str
    before: str
    after: str
    buffers: tuple[str, ...]
    reason: str
    first: tuple[str, ...] = ("*",)
    second: tuple[str, ...] = ("*",)
