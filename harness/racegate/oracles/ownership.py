"""Ownership oracle: a cell that crosses a step boundary carries (request, step); reading another
one's is a finding.

It sees what happens-before cannot: a value that was waited for correctly and belongs to another
request.
"""

from __future__ import annotations

from racegate.history.trace import Misowned, Trace


def find_misowned(trace: Trace) -> list[Misowned]:
    """All reads of a run that found another owner than they meant to."""
    return [event for event in trace.events if isinstance(event, Misowned)]
