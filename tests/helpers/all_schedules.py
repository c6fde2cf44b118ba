"""Every schedule of a small program, by replaying all sequences of choices.

Exponential: for litmus programs, and as the ground truth for the reduced search.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from racegate.device.stepping import Stepper, Transition

RUNS_MAX = 200_000

T = TypeVar("T")


class SequenceStepper:
    """Follows a sequence of choices, then takes first options; notes how many there were."""

    def __init__(self, choices: Sequence[int]) -> None:
        self._choices = choices
        self.options: list[int] = []

    def choose(self, enabled: Sequence[Transition]) -> int:
        """See Stepper."""
        place = len(self.options)
        self.options.append(len(enabled))
        return self._choices[place] if place < len(self._choices) else 0


class TooManyRunsError(Exception):
    """A program with more schedules than RUNS_MAX."""


def all_runs(run: Callable[[Stepper], T]) -> list[T]:
    """The result of `run` under every sequence of choices. Raises TooManyRunsError."""
    results: list[T] = []
    choices: list[int] = []
    while True:
        if len(results) >= RUNS_MAX:
            raise TooManyRunsError(f"more than {RUNS_MAX} schedules")
        stepper = SequenceStepper(choices)
        results.append(run(stepper))
        choices += [0] * (len(stepper.options) - len(choices))
        # Next sequence in the manner of an odometer whose digits have different bases.
        while choices and choices[-1] + 1 >= stepper.options[len(choices) - 1]:
            choices.pop()
        if not choices:
            return results
        choices[-1] += 1
