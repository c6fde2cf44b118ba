"""An observation counts only where a planted wrong value changes it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest
from test_vllm_search import SCENARIO

from racegate.history.finding import Verdict
from racegate.interpose.outcome import Ending, Observation, Plan
from racegate.jobs.foreign import releases
from racegate.scenario.spec import Scenario
from racegate.targets.common.judge import judge
from racegate.targets.common.sensitivity import Pulse, absent, dead
from racegate.targets.common.wire import Observed, ReleaseRun
from racegate.targets.vllm.cell import Cell
from racegate.targets.vllm.sensitivity import sensitivity_of
from racegate.targets.vllm.wire import ModelRunner, StateMode
from small_engine import Served, SmallEngine, Wait

CELL = Cell(release="1.0", runner=ModelRunner.V1, mode=StateMode.NONE)
VALUES: dict[str, dict[str, object]] = {
    "metadata": {"accepted": [2], "seq_lens": [9], "spec_state_indices_tensor": [[1]]},
    "zeroed": {"blocks": [5]},
    "sampled": {"tokens": {"A": [7]}},
}
PLACES = {
    Observed.ACCEPTED: ("metadata", "accepted"),
    Observed.LENGTHS: ("metadata", "seq_lens"),
    Observed.SLOTS: ("metadata", "spec_state_indices_tensor"),
    Observed.ZEROED: ("zeroed", "blocks"),
    Observed.TOKENS: ("sampled", "tokens"),
}


class Planted:
    """An engine of which some observations show what is planted, and some are not there."""

    def __init__(self, *, deaf: Observed | None = None, without: Observed | None = None) -> None:
        self.deaf = deaf
        self.without = without
        self.runs = 0
        self.siblings: tuple[Planted, ...] = ()

    def run(self, scenario: Scenario, plan: Plan, *, plant: Observed | None = None) -> ReleaseRun:
        """As `Engine.run` of the client."""
        self.runs += 1
        values = {name: dict(fields) for name, fields in VALUES.items()}
        if plant is not None and plant is not self.deaf:
            name, field = PLACES[plant]
            values[name][field] = "wrong"
        if self.without is not None:
            name, field = PLACES[self.without]
            values[name].pop(field)
        seen = tuple(
            Observation(f"step 5 {name}", "", msgspec.json.encode(fields).decode())
            for name, fields in values.items()
        )
        return ReleaseRun(ending=Ending.FINISHED, observations=seen)


def test_all_that_change_are_alive() -> None:
    found = sensitivity_of(Planted())
    assert found == dict.fromkeys(Observed, Pulse.ALIVE)
    assert dead(found) == absent(found) == ()


def test_an_engine_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Planted()

    @contextmanager
    def opened(*_: object, **__: object) -> Iterator[Planted]:
        yield engine

    monkeypatch.setattr(releases, "open_cell", opened)
    with releases.open_release(CELL) as release:
        assert engine.runs == 0
        first = release.sensitivity()
        assert engine.runs == 1 + len(Observed)
        assert release.sensitivity() == first
    assert engine.runs == 1 + len(Observed)


@pytest.mark.parametrize("observed", list(Observed))
def test_one_that_does_not_change_is_dead(observed: Observed) -> None:
    found = sensitivity_of(Planted(deaf=observed))
    assert [o for o, pulse in found.items() if pulse is Pulse.DEAD] == [observed]
    assert dead(found) == (
        f"observation of {observed} is dead: a planted wrong value did not change it",
    )


@pytest.mark.parametrize("observed", list(Observed))
def test_one_that_is_not_there_is_said_so(observed: Observed) -> None:
    found = sensitivity_of(Planted(without=observed))
    assert [o for o, pulse in found.items() if pulse is Pulse.ABSENT] == [observed]
    assert str(observed) in absent(found)[0]


@pytest.mark.parametrize(
    ("wait", "verdict"),
    [
        (Wait.BEFORE, Verdict.INCONCLUSIVE),
        (Wait.DEAD, Verdict.INCONCLUSIVE),
        (Wait.BEHIND, Verdict.DIVERGENT),
    ],
)
def test_a_dead_observation_lets_nothing_pass(wait: Wait, verdict: Verdict) -> None:
    """What was found wrong is wrong all the same."""
    pulses = sensitivity_of(Planted(deaf=Observed.ACCEPTED))
    found = judge(Served(SmallEngine(wait)), SCENARIO, CELL, sensitivity=pulses)
    assert found.verdict is verdict
    assert found.unmet == dead(pulses)


def test_what_is_not_there_is_not_covered() -> None:
    pulses = sensitivity_of(Planted(without=Observed.ZEROED))
    found = judge(Served(SmallEngine(Wait.BEFORE)), SCENARIO, CELL, sensitivity=pulses)
    assert found.verdict is Verdict.PROVED
    assert set(absent(pulses)) <= set(found.not_seen)
