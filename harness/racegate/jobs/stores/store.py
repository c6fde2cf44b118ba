"""A store: one way to keep what campaigns find, in a folder or on a server.

Many campaigns of one subject (a seeded fault, or none) share it, on as many machines as reach it.
What is offered twice is kept once, in whatever order it comes. Only who is at work is forgotten by
itself.
"""

from __future__ import annotations

from typing import Protocol

from racegate.jobs.stores.records import CampaignState, KeptFinding
from racegate.scenario.errors import BadInputError

# For how long a campaign is its driver's, unless it says again that it is at work.
LEASE_S = 30.0


class StoreError(BadInputError):
    """A store that cannot be used, and why. Without secrets."""


class StoreDownError(StoreError):
    """A store that does not answer; it may come back."""


class Store(Protocol):
    """Raises StoreError from every method."""

    @property
    def name(self) -> str:
        """Where it is, for people. Without secrets."""
        ...

    def offer(self, finding: KeptFinding) -> KeptFinding:
        """Keeps a finding, unless one with its signature stays; the one that is kept now."""
        ...

    def findings(self) -> list[KeptFinding]:
        """All of them, by signature."""
        ...

    def advance(self, state: CampaignState) -> CampaignState:
        """Keeps how far a campaign is, unless it was further; the state that is kept now."""
        ...

    def states(self) -> list[CampaignState]:
        """Of all campaigns, by seed."""
        ...

    def hold(self, seed: int, driver: str) -> str:
        """Lets a driver work at a campaign for LEASE_S, unless another one does; who may."""
        ...

    def release(self, seed: int, driver: str) -> None:
        """The driver has ended."""
        ...
