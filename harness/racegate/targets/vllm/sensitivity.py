"""Whether each observation of an engine would show a wrong value: one is planted, and has to show.

In some release a value that is observed may be a leftover that nothing writes any more; what is
judged by it would always be fine.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from racegate.interpose.outcome import Plan
from racegate.scenario.spec import Request, Scenario
from racegate.targets.common.sensitivity import Pulse, Sensitivity
from racegate.targets.common.wire import Observed, ReleaseRun

# Everything decodes, with rejections, when the value is planted.
PROBE = Scenario(
    name="probe",
    title="three requests that decode",
    steps_max=9,
    requests=(
        Request(name="A", arrive=0, prompt=(5, 6, 7, 8), max_tokens=40, accepts=(2,)),
        Request(name="B", arrive=1, prompt=(9, 10, 11), max_tokens=40, accepts=(3,)),
        Request(name="C", arrive=4, prompt=(30, 31, 32), max_tokens=40, accepts=(1,)),
    ),
)
# Name of the observation, and its fields.
_FIELDS = {
    Observed.ACCEPTED: ("metadata", ("accepted",)),
    Observed.LENGTHS: ("metadata", ("seq_lens",)),
    Observed.SLOTS: (
        "metadata",
        (
            "spec_state_indices_tensor",
            "non_spec_state_indices_tensor",
            "state_indices_tensor_d",
            "state_indices_tensor_p",
        ),
    ),
    Observed.ZEROED: ("zeroed", ("blocks",)),
    Observed.TOKENS: ("sampled", ("tokens",)),
}


class Plants(Protocol):
    """An engine that can be told to plant a wrong value."""

    def run(self, scenario: Scenario, plan: Plan, *, plant: Observed | None = None) -> ReleaseRun:
        """One run under a plan. plant: what is made wrong behind the runner's back"""
        ...


def sensitivity_of(engine: Plants) -> Sensitivity:
    """One run as it is, and one per observation with a wrong value in it."""
    plan = Plan(is_recording=False)
    base = engine.run(PROBE, plan)
    return {
        observed: _pulse(observed, base, engine.run(PROBE, plan, plant=observed))
        for observed in Observed
    }


def _pulse(observed: Observed, base: ReleaseRun, planted: ReleaseRun) -> Pulse:
    before = _values(observed, base)
    if not any(before.values()):
        return Pulse.ABSENT
    after = _values(observed, planted)
    is_changed = any(after[key] != before.get(key, after[key]) for key in after)
    return Pulse.ALIVE if is_changed else Pulse.DEAD


def _values(observed: Observed, told: ReleaseRun) -> dict[str, list[object]]:
    """The values of an observation, by the step and its count in it."""
    name, fields = _FIELDS[observed]
    found: dict[str, list[object]] = {}
    for one in told.observations:
        if one.name.endswith(f" {name}"):
            values = msgspec.json.decode(one.preview)
            known = [values[field] for field in fields if field in values]
            found.setdefault(one.name, []).extend(known)
    return found
