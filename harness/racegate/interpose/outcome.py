"""What one run of a program gave, as data: written by the run, read by the launcher."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from racegate.interpose.order.findings import Finding


class Ending(StrEnum):
    """How the program ended."""

    FINISHED = "finished"
    FAILED = "failed"
    NOT_MODELLED = "not modelled"
    LOST = "lost"
    TIMED_OUT = "timed out"


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How a run is made. holds: (operation, until) pairs; polls: queries answered "not ready"."""

    holds: tuple[tuple[str, str], ...] = ()
    polls: int = 0
    is_recording: bool = True


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What the device is told: run this program under this plan, and write the outcome there."""

    argv: tuple[str, ...]
    plan: Plan
    result: str
    is_quiet: bool = False


class Observation(msgspec.Struct, frozen=True):
    """What the program marked as not to depend on the schedule. digest: of its bytes."""

    name: str
    digest: str
    preview: str


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """exit_code: the script's own; not_seen: what the verdict does not cover, by kind."""

    ending: Ending
    exit_code: int = 0
    message: str = ""
    events: int = 0
    findings: tuple[Finding, ...] = ()
    observations: tuple[Observation, ...] = ()
    not_seen: dict[str, int] = {}
    realised: dict[str, int] = {}
    torch_version: str = ""

    @property
    def seen(self) -> tuple[object, ...]:
        """What must be the same under every schedule."""
        return (self.ending, self.exit_code, self.observations)
