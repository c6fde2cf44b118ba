"""The state graph: what is known of the stepped runs of one program.

A state is a place between two steps of the engine; a transition is one step with its choices. Two
runs are in the same state if, so far, the program did, read and showed its observers the same, and
if now all memory has the same contents of the same owners and the same is pending. From there only
choices decide how they go on, and what they have left behind is the same.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

from racegate.check.judge import Judged
from racegate.device.stepping import Stepper, Transition
from racegate.device.virtual.device import VirtualDevice
from racegate.history.run import Run


class NotRepeatedError(RuntimeError):
    """A step that was repeated with the same choices led to another state."""


class Choice(NamedTuple):
    """The transitions that a stepper was offered, and the index of the one that it chose."""

    enabled: Sequence[Transition]
    chosen: int


class GraphTransition(NamedTuple):
    """One step of the engine, with the choices made in it."""

    choices: Sequence[Choice]
    end: GraphState


class GraphState:
    """A state of the graph, between two steps of the engine.

    step: the engine's next step; -1 before there is an engine
    taken: how many choices were made before it; events: how many events the trace has so far
    history: a number that stands for everything done and read so far
    transitions: those that start here and were taken at least once
    run: what runs that end here leave behind; judged: what the oracles say about it
    """

    __slots__ = ("events", "history", "judged", "reads", "run", "step", "taken", "transitions")

    def __init__(
        self, *, step: int, taken: int = 0, events: int = 0, reads: int = 0, history: int = 0
    ) -> None:
        self.step = step
        self.taken = taken
        self.events = events
        self.reads = reads
        self.history = history
        self.transitions: list[GraphTransition] = []
        self.run: Run | None = None
        self.judged: Judged | None = None


class StateGraph:
    """All states that runs of one program were in. root: where every run begins"""

    def __init__(self) -> None:
        self.root = GraphState(step=-1)
        self._numbers: dict[Hashable, int] = {}
        self._states: dict[Hashable, GraphState] = {}

    def __len__(self) -> int:
        return len(self._states)

    def behind(
        self, before: GraphState, choices: Sequence[Choice], device: VirtualDevice, *, is_end: bool
    ) -> GraphState:
        """The state of a device that has made one step from the state before."""
        events, reads = device.recorder.events, device.reads
        history = self._number((before.history, *events[before.events :], *reads[before.reads :]))
        key = (history, is_end, device.shown, *map(self._number, device.standing()))
        state = self._states.get(key)
        if state is None:
            state = self._states[key] = GraphState(
                step=before.step + 1,
                taken=before.taken + len(choices),
                events=len(events),
                reads=len(reads),
                history=history,
            )
        return state

    def _number(self, part: Hashable) -> int:
        """A number for it, so that a part that many states share is kept once."""
        return self._numbers.setdefault(part, len(self._numbers) + 1)


def known_transition(
    state: GraphState, stepper: Stepper
) -> tuple[GraphTransition | None, list[int]]:
    """The transition that a stepper takes from a state, or None if it was never taken before.

    Also the choices that the stepper has made, as far as they are those of a known transition.
    """
    made: list[int] = []
    transitions = state.transitions
    while transitions:
        # What follows the same choices is the same, an end too.
        if len(transitions[0].choices) == len(made):
            return transitions[0], made
        chosen = stepper.choose(transitions[0].choices[len(made)].enabled)
        transitions = [each for each in transitions if each.choices[len(made)].chosen == chosen]
        made.append(chosen)
    return None, made
