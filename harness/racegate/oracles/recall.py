"""Recall: what oracles said about the last run, for what the next one has in common with it.

Runs that go on from one state share the observations before it, and runs of one program mostly have
equal traces. Of those an oracle would say the same again: a fact of one observation, or of a trace,
does not depend on the rest of the run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from racegate.history.observe import Boundary, Observation, of_rank
from racegate.history.run import Run
from racegate.history.trace import Conflict, Misowned, Trace, TraceEvent
from racegate.oracles.invariants import Violation, find_violations
from racegate.oracles.ordering import find_conflicts
from racegate.oracles.ownership import WrongPage, find_wrong_pages
from racegate.oracles.stepwise import Divergence, find_divergence
from racegate.scenario.settings import CacheMode
from racegate.scenario.spec import OwnScenario


class Recall:
    """Asks oracles of one scenario, run after run; of each run, about what is new."""

    def __init__(self) -> None:
        self._ordered: tuple[tuple[TraceEvent, ...], list[Conflict]] | None = None
        self._paged: tuple[tuple[object, ...], list[WrongPage]] | None = None
        self._compared: Sequence[Observation] = ()
        self._divergence: Divergence | None = None
        self._agreed = 0
        self._looked_at: Sequence[Observation] = ()
        self._violations: list[list[Violation]] = []

    def conflicts(self, trace: Trace) -> list[Conflict]:
        """See find_conflicts, which does not look at owners."""
        events = _unowned(trace)
        if self._ordered is None or self._ordered[0] != events:
            self._ordered = (events, find_conflicts(trace))
        return self._ordered[1]

    def wrong_pages(
        self, run: Run, scenario: OwnScenario, plain: Mapping[str, Sequence[int]]
    ) -> list[WrongPage]:
        """See find_wrong_pages, which does not look at values either."""
        if scenario.engine.cache_mode is not CacheMode.OFFLOAD:
            return []
        plans = [o for o in of_rank(run.observations) if o.boundary is Boundary.SCHEDULED]
        told = (_unowned(run.trace), [(o.detail["taking"], o.detail["computed"]) for o in plans])
        if self._paged is None or self._paged[0] != told:
            self._paged = (told, find_wrong_pages(told[0], plans, scenario, plain))
        return self._paged[1]

    def divergence(
        self, actual: Sequence[Observation], expected: Sequence[Observation]
    ) -> Divergence | None:
        """See find_divergence. expected: the same for all runs, up to where each stopped"""
        shared = _shared(actual, self._compared)
        is_known = self._divergence is not None and self._agreed < min(shared, len(expected))
        if not is_known:
            agreed = min(shared, self._agreed)
            self._divergence = find_divergence(actual, expected, agreed=agreed)
            self._agreed = _agreed(actual, expected, self._divergence)
        self._compared = actual
        return self._divergence

    def violations(self, observed: Sequence[Observation], scenario: OwnScenario) -> list[Violation]:
        """See find_violations, which looks at each observation by itself."""
        shared = _shared(observed, self._looked_at)
        new = [find_violations((seen,), scenario) for seen in observed[shared:]]
        self._violations = self._violations[:shared] + new
        self._looked_at = observed
        return [violation for found in self._violations for violation in found]


def _unowned(trace: Trace) -> tuple[TraceEvent, ...]:
    """What a trace says of orders: whose values were read is another question."""
    return tuple([event for event in trace.events if type(event) is not Misowned])


def _shared(one: Sequence[Observation], other: Sequence[Observation]) -> int:
    """How many observations at the beginning of two runs are the very same objects."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((n for n, (a, b) in pairs if a is not b), min(len(one), len(other)))


def _agreed(
    actual: Sequence[Observation], expected: Sequence[Observation], found: Divergence | None
) -> int:
    """How many observations come before the first that differs."""
    common = min(len(actual), len(expected))
    if found is None:
        return common
    pairs = enumerate(expected[:common])
    at = (found.step, found.boundary)
    return next((n for n, seen in pairs if (seen.step, seen.boundary) == at), common)
