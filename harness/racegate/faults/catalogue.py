"""The seeded faults by name. Definitions: bug_catalogue section 7; the numbers are those of its
tables. Variants can be run like faults, and are demanded nowhere.
"""

from __future__ import annotations

from racegate.faults import (
    accepted,
    controls,
    correction,
    graphs,
    halffixes,
    lifecycle,
    rows,
    staging,
    states,
    streams,
)
from racegate.faults.fault import Fault

_GROUPS = (accepted, staging, streams, correction, rows, states, graphs, lifecycle)

FAULTS: tuple[Fault, ...] = tuple(
    sorted((fault for group in _GROUPS for fault in group.FAULTS), key=lambda fault: fault.number)
)


VARIANTS: tuple[Fault, ...] = (
    *halffixes.VARIANTS,
    *correction.VARIANTS,
    *controls.VARIANTS,
)


class FaultError(Exception):
    """A fault name that does not exist; says which do."""


def find_fault(name: str) -> Fault:
    """The fault of that name. Raises FaultError."""
    for fault in FAULTS + VARIANTS:
        if fault.name == name:
            return fault
    known = ", ".join(fault.name for fault in FAULTS + VARIANTS)
    raise FaultError(f"no fault {name!r}; there are: {known}")
