"""Every schedule of a small program, by replaying all sequences of completion choices.

Exponential: for litmus programs, and as the ground truth for the reduced search.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from racegate.device.chooser import SteppingChooser

RUNS_MAX = 200_000

T = TypeVar("T")


class SequenceChooser(SteppingChooser):
    """Follows a sequence of choices, then completes nothing; notes the options of each choice.

    Choice 0 completes nothing more for now, choice i the i-th ready operation.
    """

    def __init__(self, choices: Sequence[int]) -> None:
        self._choices = choices
        self.options: list[int] = []

    def pick(self, ready: Sequence[str]) -> int | None:
        place = len(self.options)
        self.options.append(1 + len(ready))
        choice = self._choices[place] if place < len(self._choices) else 0
        return choice - 1 if choice else None


class TooManyRunsError(Exception):
    """A program with more schedules than RUNS_MAX."""


def all_runs(run: Callable[[SequenceChooser], T]) -> list[T]:
    """The result of `run` under every sequence of choices. Raises TooManyRunsError."""
    results: list[T] = []
    choices: list[int] = []
    while True:
        if len(results) >= RUNS_MAX:
            raise TooManyRunsError(f"more than {RUNS_MAX} schedules")
        chooser = SequenceChooser(choices)
        results.append(run(chooser))
        choices += [0] * (len(chooser.options) - len(choices))
        # Next sequence in the manner of an odometer whose digits have different bases.
        while choices and choices[-1] + 1 >= chooser.options[len(choices) - 1]:
            choices.pop()
        if not choices:
            return results
        choices[-1] += 1
