"""A scenario's events by step, and which of them took effect."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from racegate.scenario.spec import Budget, Dummy, Event, Gap, Rotate

E = TypeVar("E", bound=Event)


class Events:
    """Looks events up in file order; whoever applies one says so."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._events = tuple(events)
        self._by_step: dict[int, list[int]] = {}
        self._gaps: dict[str, list[tuple[int, Gap]]] = {}
        for index, event in enumerate(self._events):
            self._by_step.setdefault(event.step, []).append(index)
            if isinstance(event, Gap):
                self._gaps.setdefault(event.request, []).append((index, event))
        self._met: set[int] = set()

    def at(self, kind: type[E], step: int) -> Iterator[tuple[int, E]]:
        """Index and event of a kind at a step."""
        for index in self._by_step.get(step, ()):
            event = self._events[index]
            if isinstance(event, kind):
                yield index, event

    def in_gap(self, request: str, step: int) -> bool:
        """Whether a gap keeps the request out of this step's plan; that meets the gap."""
        covering = [
            index
            for index, gap in self._gaps.get(request, ())
            if gap.step <= step < gap.step + gap.steps
        ]
        self._met.update(covering)
        return bool(covering)

    def meet(self, index: int) -> None:
        """The event had an effect."""
        self._met.add(index)

    def unmet(self) -> tuple[str, ...]:
        """The events without effect, as '<kind> <requests> @<step>', in file order."""
        return tuple(
            _described(event) for i, event in enumerate(self._events) if i not in self._met
        )


def _described(event: Event) -> str:
    kind = event.__struct_config__.tag
    match event:
        case Budget() | Dummy():
            return f"{kind} @{event.step}"
        case Rotate():
            return f"{kind} {','.join(event.requests)} @{event.step}"
        case _:
            return f"{kind} {event.request} @{event.step}"
