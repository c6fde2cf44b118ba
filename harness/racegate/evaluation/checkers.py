"""Checkers of the gate's scripts by name, each made when it is first asked for: what takes time in
one is the reference, which serves every fault.
"""

from __future__ import annotations

from collections.abc import Mapping

from racegate.check.checker import Checker
from racegate.scenario.spec import Scenario


class Checkers:
    """One worker's checkers."""

    def __init__(self, scenarios: Mapping[str, Scenario]) -> None:
        self.names = tuple(scenarios)
        self._scenarios = scenarios
        self._made: dict[str, Checker] = {}

    def of(self, name: str) -> Checker:
        """The checker of a script. Raises KeyError."""
        if name not in self._made:
            self._made[name] = Checker(self._scenarios[name])
        return self._made[name]
