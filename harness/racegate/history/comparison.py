"""A changed engine beside its base: what only the change shows, as data."""

from __future__ import annotations

from racegate.history.exit_code import ExitCode
from racegate.history.finding import Finding
from racegate.scenario.strict import StrictStruct


class Comparison(StrictStruct, frozen=True, kw_only=True):
    """One scenario on a changed engine beside the same scenario on its base, under the same plans.

    base: what it is compared with, in words
    changed: the first value that the change observes otherwise although nothing is held, if any
    new: conflicts that the base has not, or in which landings do more harm than there
    repaired: conflicts of the base that are gone, or in which landings do less harm, by signature
    known: how many conflicts both have, with the same effect
    unmet: in words, what is not met although the base meets it, or why nothing could be compared
    """

    base: str
    changed: Finding | None = None
    new: tuple[Finding, ...] = ()
    repaired: tuple[str, ...] = ()
    known: int = 0
    unmet: tuple[str, ...] = ()

    @property
    def code(self) -> ExitCode:
        """What a gate ends with that asks for this scenario alone: what base and change have in
        common is no finding, whatever its verdict.
        """
        if self.changed is not None or self.new:
            return ExitCode.FINDING
        return ExitCode.INCONCLUSIVE if self.unmet else ExitCode.CLEAN
