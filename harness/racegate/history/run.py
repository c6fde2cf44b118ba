"""Run: everything one run of the engine left behind, for the oracles."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from racegate.history.edge import Edge
from racegate.history.observe import Observation
from racegate.history.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run.

    edges: the orderings that its engine declares, by which a missing one is named
    stopped: why the engine did not reach its end, if it did not
    """

    trace: Trace
    observations: tuple[Observation, ...]
    edges: tuple[Edge, ...]
    result: EngineResult | None
    stopped: Exception | None
    seconds: float


class EngineResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a run delivered. finished: request -> max_tokens, stop, abort or unfinished; steps:
    iterations; in_flight: steps that were issued and whose output was not looked at
    """

    delivered: dict[str, tuple[int, ...]]
    finished: dict[str, str]
    steps: int
    counters: dict[str, int]
    unmet_events: tuple[str, ...]
    in_flight: int = 0
