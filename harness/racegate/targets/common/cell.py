"""Which engine is judged, as far as its judge has to know it, and what it is asked for."""

from __future__ import annotations

from shlex import quote
from typing import Protocol

from racegate.interpose.outcome import Plan
from racegate.scenario.spec import Scenario
from racegate.scenario.strict import StrictStruct
from racegate.targets.common.wire import ReleaseRun


class Runs(Protocol):
    """What is judged: an engine that answers one run at a time."""

    def run(self, scenario: Scenario, plan: Plan) -> ReleaseRun:
        """One run under a plan."""
        ...


class EngineCell(StrictStruct, frozen=True, kw_only=True):
    """Which engine, as a verdict has it and a witness names its subject.

    release: its version, as the package index has it
    checkout: the path of a local checkout that takes the place of the release's own sources
    """

    release: str
    checkout: str | None = None

    @property
    def place(self) -> str:
        """The checkout if there is one, else the release."""
        return self.checkout or self.release

    @property
    def place_options(self) -> tuple[str, ...]:
        """Of the command line: which release, and which checkout."""
        release = f"--release {quote(self.release)}"
        return (release,) if self.checkout is None else (release, f"--path {quote(self.checkout)}")

    @property
    def settings(self) -> tuple[str, ...]:
        """What tells it from others of its release, for the name of a file."""
        raise NotImplementedError

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

    def impossible(self, scenario: Scenario) -> dict[str, str]:
        """What the scenario expects and this engine never does, by name, with the reason: a run is
        asked for the rest.
        """
        return {}

    def cannot_run(self, scenario: Scenario) -> str:
        """Why a scenario cannot be run on it; empty if it can."""
        raise NotImplementedError
