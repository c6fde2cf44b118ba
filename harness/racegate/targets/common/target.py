"""What is judged: a program, a scenario on a release, or one on an engine behind an adapter."""

from __future__ import annotations

from typing import Protocol, TypeVar

from racegate.interpose.outcome import Outcome, Plan

Ran = TypeVar("Ran", bound=Outcome)
RanAs = TypeVar("RanAs", bound=Outcome, covariant=True)


class Target(Protocol[RanAs]):
    """What runs under a schedule. Its arguments, or its scenario, are bound when it is made."""

    def run(self, plan: Plan) -> RanAs:
        """One run under a plan: what happened in it."""
        ...
