"""The seeded faults by name; docs/faults.md shows them with what happened in public. Variants can
be run like faults, and are demanded nowhere.
"""

from __future__ import annotations

from racegate.faults import (
    accepted,
    correction,
    graphs,
    halffixes,
    ranks,
    rows,
    slots,
    staging,
    states,
    streams,
)
from racegate.faults.fault import Fault
from racegate.scenario.errors import BadInputError
from racegate.scenario.untrusted.near import near_it
from racegate.scenario.untrusted.text import quoted

# By cause: one module, and one chapter of docs/faults.md, each.
CAUSES: dict[str, tuple[Fault, ...]] = {
    "accepted": accepted.FAULTS,
    "staging": staging.FAULTS,
    "streams": streams.FAULTS,
    "correction": correction.FAULTS,
    "rows": rows.FAULTS,
    "states": states.FAULTS,
    "graphs": graphs.FAULTS,
    "lifecycle": rows.DEPARTURES,
    "slots": slots.FAULTS,
    "cascade": staging.COMMON_PREFIX,
    "ranks": ranks.FAULTS,
    "tiers": streams.TIERS,
}

FAULTS: tuple[Fault, ...] = tuple(
    sorted((fault for group in CAUSES.values() for fault in group), key=lambda fault: fault.number)
)

VARIANTS: tuple[Fault, ...] = (
    *halffixes.VARIANTS,
    *correction.VARIANTS,
    *halffixes.CONTROLS,
)


class FaultError(BadInputError):
    """A fault name that does not exist; says which are near it."""


def find_fault(name: str) -> Fault:
    """The fault of that name. Raises FaultError."""
    for fault in FAULTS + VARIANTS:
        if fault.name == name:
            return fault
    near = near_it(name, (fault.name for fault in FAULTS + VARIANTS))
    raise FaultError(f"no fault {quoted(name)}{near}; `racegate faults list` has all")
