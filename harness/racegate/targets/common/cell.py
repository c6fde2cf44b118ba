"""Which engine is judged, as far as its judge has to know it, and what it is asked for."""

from __future__ import annotations

from typing import Protocol

import msgspec

from racegate.interpose.outcome import Plan
from racegate.scenario.spec import Scenario
from racegate.targets.common.wire import Told


class Runs(Protocol):
    """What is judged: an engine that answers one run at a time."""

    def run(self, scenario: Scenario, plan: Plan) -> Told:
        """One run under a plan."""
        ...


class EngineCell(msgspec.Struct, frozen=True, kw_only=True):
    """Which engine. release: its version, or a checkout's path"""

    release: str

    @property
    def title(self) -> str:
        """What a reader calls it."""
        raise NotImplementedError

    @property
    def command(self) -> tuple[str, ...]:
        """What follows `racegate` on the command line, then the options behind the scenario."""
        raise NotImplementedError

    @property
    def unseen(self) -> str:
        """What no verdict on it covers."""
        raise NotImplementedError

    def cannot_run(self, scenario: Scenario) -> str:
        """Why a scenario cannot be run on it; empty if it can."""
        raise NotImplementedError
