"""Run: everything one run of the engine left behind, for the oracles."""

from __future__ import annotations

from dataclasses import dataclass

from racegate.engine.engine import EngineResult
from racegate.observe import Observation
from racegate.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run. stopped: why the engine did not reach its end, if it did not."""

    trace: Trace
    observations: tuple[Observation, ...]
    result: EngineResult | None
    stopped: Exception | None
    seconds: float
