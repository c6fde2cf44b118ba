"""The seeded faults by name. Definitions: bug_catalogue section 7; the numbers are those of its
tables.
"""

from __future__ import annotations

from racegate.faults import (
    accepted,
    correction,
    graphs,
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


class FaultError(Exception):
    """A fault name that does not exist; says which do."""


def find_fault(name: str) -> Fault:
    """The fault of that name. Raises FaultError."""
    for fault in FAULTS:
        if fault.name == name:
            return fault
    known = ", ".join(fault.name for fault in FAULTS)
    raise FaultError(f"no fault {name!r}; there are: {known}")
