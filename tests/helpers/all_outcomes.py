"""The outcomes of all schedules of an abstract program, by brute force."""

from __future__ import annotations

from collections.abc import Iterator

from racegate.explore.abstract import AbstractProgram, Outcome, State


def all_outcomes(program: AbstractProgram) -> tuple[set[Outcome], int]:
    """The outcomes of all linear extensions, and their number (brute force)."""
    outcomes: set[Outcome] = set()
    count = 0
    for outcome in _extensions(State(program)):
        outcomes.add(outcome)
        count += 1
    return outcomes, count


def _extensions(state: State) -> Iterator[Outcome]:
    enabled = state.enabled()
    if not enabled:
        yield state.outcome()
    for action in enabled:
        following = state.copy()
        following.take(action)
        yield from _extensions(following)
