"""A batch in slots: requests stay where they are, and the host waits for what reads its pool."""

from __future__ import annotations

import msgspec
import pytest

from racegate.check.checker import Checker
from racegate.history.finding import Verdict
from racegate.history.observe import Boundary
from racegate.history.schedule import LATE, Schedule
from racegate.history.trace import HostAccess, Waited
from racegate.scenario.expect import Expect
from racegate.scenario.settings import Layout, OutputEvent
from racegate.scenario.spec import OwnScenario, Rotate, ScenarioError
from racegate.scenario.validation import validate
from support import checker

SLOTS = "slots-place-per-step"


def in_slots(name: str, output_event: OutputEvent) -> OwnScenario:
    """A script of the other layout, but for what only that one has."""
    scenario = checker(name).scenario
    engine = msgspec.structs.replace(
        scenario.engine, layout=Layout.SLOTS, output_event=output_event
    )
    return msgspec.structs.replace(scenario, engine=engine, expect=Expect())


@pytest.mark.parametrize("output_event", OutputEvent)
@pytest.mark.parametrize(
    "name",
    ["constrained-rows", "align-resume-from-prefix", "all-graphs", "depth-three", "mrope-image"],
)
def test_scripts_of_rows_are_right_in_slots(name: str, output_event: OutputEvent) -> None:
    asked = Checker(in_slots(name, output_event))
    assert asked.run().verdict is Verdict.PROVED
    assert asked.run(schedule=LATE).findings == ()


def test_tokens_may_leave_before_the_drafter_with_rows_too() -> None:
    scenario = checker("finish-and-condense").scenario
    engine = msgspec.structs.replace(scenario.engine, output_event=OutputEvent.BEFORE_DRAFTER)
    asked = Checker(msgspec.structs.replace(scenario, engine=engine))
    assert asked.run(schedule=Schedule()).verdict is Verdict.PROVED


def test_a_request_keeps_its_slot_and_no_two_have_one() -> None:
    slot_of: dict[str, int] = {}
    seen = checker(SLOTS).execute().observations
    for one in (o for o in seen if o.boundary is Boundary.PREPARED):
        slots = dict(zip(one.values["rows"], one.detail["slots"], strict=True))
        assert len(set(slots.values())) == len(slots)
        for name, slot in slots.items():
            assert slot_of.setdefault(name, slot) == slot
    assert len(set(slot_of.values())) < len(slot_of), "a slot is taken again"


@pytest.mark.parametrize("name", [SLOTS, "slots-all-preempted"])
def test_the_host_waits_for_the_pool_and_for_tokens_alone(name: str) -> None:
    events = checker(name).execute().trace.events
    waited = {event.edge for event in events if isinstance(event, Waited)}
    assert waited == {"pool-place-reuse", "output-copy-after-step", "output-landed"}
    written = {e.access.buffer for e in events if isinstance(e, HostAccess) and e.access.is_write}
    assert {buffer for buffer in written if not buffer.endswith("_pool")} == {"sampled_cpu"}


def test_slots_cannot_be_rotated() -> None:
    scenario = in_slots("two-row-cycle", OutputEvent.AFTER_DRAFTER)
    assert any(isinstance(event, Rotate) for event in scenario.events)
    with pytest.raises(ScenarioError, match=r"events\[\d\]: slots do not move: .* layout rows"):
        validate(scenario)
