"""Canonical holds: the few orders in which a run differs from the eager baseline, as holds.

Inversions of steps that do not conflict change nothing and are dropped; what remains is one hold
per operation whose conflicts came out reversed: delays of a deterministic scheduler, as in delay
bounding (Emmi, Qadeer and Rakamaric, POPL 2011).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from racegate.device.stepping import Transition
from racegate.explore.pairs import unordered_pairs
from racegate.history.schedule import FORCED, Hold, Schedule, step_number, with_step
from racegate.history.trace import HOST


def canonical_holds(steps: Sequence[Transition], *, fine: bool) -> Schedule:
    """The holds that reverse, over the eager baseline, what a stepped run reversed.

    steps: in the order in which they were taken
    fine: host points as single accesses; otherwise as whole actions
    """
    overtaken: dict[int, int] = {}
    for earlier, later in unordered_pairs(steps):
        if steps[later].process != HOST and steps[later].issued < steps[earlier].issued:
            overtaken[later] = max(earlier, overtaken.get(later, -1))
    holds = []
    held_until: dict[int, int] = {}
    for place, until in overtaken.items():  # by place, as the pairs are
        step = steps[place]
        # First in, first out: an operation held as long before this one on its stream holds it too.
        if held_until.get(step.process, -1) < until:
            held_until[step.process] = until
            holds.append(Hold(op=step.label, until=_point(steps[until], fine=fine)))
    return Schedule(holds=tuple(holds))


def _point(step: Transition, *, fine: bool) -> str:
    return step.label if step.process != HOST or fine else step.label.partition("#")[0]


def symbolic(
    schedule: Schedule, plans: Mapping[int, Sequence[str]], *, prefer: str | None
) -> Schedule:
    """The same holds with steps named after requests, so that a smaller scenario keeps their
    meaning.

    plans: step -> requests scheduled in it; prefer: the request to name steps after where possible
    """
    alias: dict[int, str] = {}
    counts: dict[str, int] = {}
    for step in sorted(plans):
        for request in plans[step]:
            if step not in alias or request == prefer:
                alias[step] = f"{request}.{counts.get(request, 0)}"
            counts[request] = counts.get(request, 0) + 1

    def renamed(name: str) -> str:
        step = step_number(name)
        return name if name == FORCED or step not in alias else with_step(name, alias[step])

    return Schedule(
        holds=tuple(
            msgspec.structs.replace(hold, op=renamed(hold.op), until=renamed(hold.until))
            for hold in schedule.holds
        )
    )
