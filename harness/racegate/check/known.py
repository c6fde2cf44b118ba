"""What is known of the stepped runs of one program: the junctions between its steps, and the ways
from one to the next.

Two runs are at the same junction if, so far, the program did, read and showed its observers the
same, and if now the same contents of the same owners stand in all memory and the same is pending.
How they go on depends on choices alone, and what they have left behind is the same.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

from racegate.check.judge import Judged
from racegate.device.stepping import Stepper, Transition
from racegate.device.virtual.device import VirtualDevice
from racegate.history.run import Run


class NotRepeatedError(RuntimeError):
    """A step that was taken once more, with the same choices, led elsewhere."""


class Choice(NamedTuple):
    """What a stepper was offered, and the place of what it chose."""

    enabled: Sequence[Transition]
    chosen: int


class Way(NamedTuple):
    """One step of the engine, with the choices made in it."""

    choices: Sequence[Choice]
    end: Junction


class Junction:
    """Where a run can stand.

    step: the engine's next; -1: there is no engine yet
    taken: transitions before it; events: of the trace, so far; history: stands for what was done
        and read so far
    ways: those out of it that were taken once
    run: what runs that end here leave behind; judged: what is said about it
    """

    __slots__ = ("events", "history", "judged", "reads", "run", "step", "taken", "ways")

    def __init__(
        self, *, step: int, taken: int = 0, events: int = 0, reads: int = 0, history: int = 0
    ) -> None:
        self.step = step
        self.taken = taken
        self.events = events
        self.reads = reads
        self.history = history
        self.ways: list[Way] = []
        self.run: Run | None = None
        self.judged: Judged | None = None


class Junctions:
    """All that were met. root: where every run begins"""

    def __init__(self) -> None:
        self.root = Junction(step=-1)
        self._numbers: dict[Hashable, int] = {}
        self._junctions: dict[Hashable, Junction] = {}

    def __len__(self) -> int:
        return len(self._junctions)

    def behind(
        self, before: Junction, choices: Sequence[Choice], device: VirtualDevice, *, is_end: bool
    ) -> Junction:
        """Where a device stands, a step behind a junction."""
        events, reads = device.recorder.events, device.reads
        history = self._number((before.history, *events[before.events :], *reads[before.reads :]))
        key = (history, is_end, device.shown, *map(self._number, device.standing()))
        junction = self._junctions.get(key)
        if junction is None:
            junction = self._junctions[key] = Junction(
                step=before.step + 1,
                taken=before.taken + len(choices),
                events=len(events),
                reads=len(reads),
                history=history,
            )
        return junction

    def _number(self, part: Hashable) -> int:
        """Stands for it: what many junctions have in common is kept once."""
        return self._numbers.setdefault(part, len(self._numbers) + 1)


def known_way(junction: Junction, stepper: Stepper) -> tuple[Way | None, list[int]]:
    """The way that a stepper takes from a junction, if it was taken before, and the choices that it
    has made as far as that is known.
    """
    made: list[int] = []
    ways = junction.ways
    while ways:
        # What follows the same choices is the same, an end too.
        if len(ways[0].choices) == len(made):
            return ways[0], made
        chosen = stepper.choose(ways[0].choices[len(made)].enabled)
        ways = [way for way in ways if way.choices[len(made)].chosen == chosen]
        made.append(chosen)
    return None, made
