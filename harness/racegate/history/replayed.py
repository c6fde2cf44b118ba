"""What a replay of a witness came to, of an engine's as of a program's."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from racegate.history.exit_code import ExitCode


class ReplayOutcome(StrEnum):
    """What a replay showed.

    REPRODUCED: the recorded signature
    OTHER: another signature
    NOTHING: no finding
    NOT_REALISED: a hold could not be kept, so nothing can be said
    """

    REPRODUCED = "reproduced"
    OTHER = "other signature"
    NOTHING = "nothing found"
    NOT_REALISED = "not realised"


EXIT_CODES = {
    ReplayOutcome.REPRODUCED: ExitCode.FINDING,
    ReplayOutcome.NOT_REALISED: ExitCode.INCONCLUSIVE,
    ReplayOutcome.OTHER: ExitCode.OTHER_SIGNATURE,
    ReplayOutcome.NOTHING: ExitCode.NOTHING_FOUND,
}


def worst_of(outcomes: Iterable[ReplayOutcome]) -> ReplayOutcome:
    """The one to report of several."""
    order = (
        ReplayOutcome.NOT_REALISED,
        ReplayOutcome.NOTHING,
        ReplayOutcome.OTHER,
        ReplayOutcome.REPRODUCED,
    )
    return min(outcomes, key=order.index)
