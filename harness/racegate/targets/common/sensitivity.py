"""Whether each observation of an engine would show a wrong value: planted ones say so."""

from __future__ import annotations

from enum import StrEnum

from racegate.targets.common.wire import Observed


class Pulse(StrEnum):
    """ALIVE: a planted wrong value changes it. DEAD: it does not. ABSENT: it is not there at all"""

    ALIVE = "alive"
    DEAD = "dead"
    ABSENT = "absent"


Sensitivity = dict[Observed, Pulse]


def dead(sensitivity: Sensitivity) -> tuple[str, ...]:
    """What makes a verdict inconclusive."""
    return tuple(
        f"observation of {observed} is dead: a planted wrong value did not change it"
        for observed, pulse in sensitivity.items()
        if pulse is Pulse.DEAD
    )


def absent(sensitivity: Sensitivity) -> tuple[str, ...]:
    """What a verdict does not cover."""
    return tuple(
        f"{observed}: not there to be observed in this release and mode"
        for observed, pulse in sensitivity.items()
        if pulse is Pulse.ABSENT
    )
