"""The gate's scripts by name, with their checkers: each is made when it is first asked for, and
serves every fault.
"""

from __future__ import annotations

from collections.abc import Mapping

from racegate.check.checker import Checker, Checkers
from racegate.scenario.spec import OwnScenario


class Scripts:
    """One worker's."""

    def __init__(self, scenarios: Mapping[str, OwnScenario]) -> None:
        self.names = tuple(scenarios)
        self._scenarios = scenarios
        self._checkers = Checkers()
        self._made: dict[str, Checker] = {}

    def checker(self, name: str) -> Checker:
        """The checker of a script. Raises KeyError, and CheckError as Checker does."""
        if name not in self._made:
            self._made[name] = self._checkers.of(self._scenarios[name])
        return self._made[name]
