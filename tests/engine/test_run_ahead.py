"""The engine is asynchronous in earnest: the host is a step ahead of the device and waits only
where it says.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from racegate.device.chooser import HoldChooser
from racegate.device.virtual.device import VirtualDevice
from racegate.engine.engine import AsyncEngine
from racegate.engine.state import edges
from racegate.engine.state.lanes import lanes_of
from racegate.history.schedule import LATE
from racegate.history.trace import HOST, HostAccess, OpRecord, Waited
from racegate_reference.decoding import truth
from support import checker, scenario

STEADY = "steady-mixed-accepts"


class Watching(VirtualDevice):
    """Notes what is still pending when the host begins to prepare each step."""

    def __init__(self, lanes: tuple[str, ...], **options: Any) -> None:
        super().__init__(lanes, **options)
        self.pending_at: dict[int, tuple[str, ...]] = {}

    def action(self, name: str, *, step: int) -> Any:
        if name == "prepare_inputs":
            self.pending_at[step] = self.pending()
        return super().action(name, step=step)


def watch(name: str) -> tuple[Watching, AsyncEngine]:
    device = Watching(lanes_of(scenario(name)), chooser=HoldChooser(LATE))
    engine = AsyncEngine(scenario(name), device, truth=truth(scenario(name)))
    engine.run()
    return device, engine


def test_device_work_of_a_step_is_pending_when_the_next_one_is_prepared() -> None:
    device, _ = watch(STEADY)
    steps = sorted(device.pending_at)
    assert len(steps) >= 6
    for step in steps[1:]:
        names = device.pending_at[step]
        forward = [name for name in names if name == f"kernel:layer.0@{step - 1}"]
        assert forward, f"nothing of the forward pass of step {step - 1} is pending: {names}"
        assert f"kernel:sample@{step - 1}" in names
        assert f"kernel:draft@{step - 1}" in names
        # Two steps back everything has been waited for (the counts of step 0 excepted: it had no
        # drafts, so the host never asks for them).
        if step > 2:
            assert not [name for name in names if name.endswith(f"@{step - 2}")]


def host_waits(name: str) -> list[Waited]:
    trace = checker(name).execute().trace
    return [e for e in trace.events if isinstance(e, Waited) and e.lane == HOST]


def test_in_the_steady_state_the_host_waits_in_three_places_only() -> None:
    waits = host_waits(STEADY)
    steady = [wait for wait in waits if 2 <= wait.step <= 5]
    for step in range(2, 6):
        assert [wait.edge for wait in steady if wait.step == step] == [
            edges.INPUT_PREP_GUARD.name,
            edges.VALID_COUNT_LANDED.name,
            edges.OUTPUT_LANDED.name,
        ]


def test_the_output_waited_for_is_that_of_the_oldest_step() -> None:
    for wait in host_waits(STEADY):
        if wait.edge == edges.OUTPUT_LANDED.name and 2 <= wait.step <= 5:
            assert wait.event == f"output@{wait.step - 1}"


def test_the_valid_counts_are_waited_for_behind_the_forward_pass() -> None:
    trace = checker(STEADY).execute().trace
    order = [
        event.name if isinstance(event, OpRecord) else event.edge
        for event in trace.events
        if (isinstance(event, OpRecord) and event.step == 3)
        or (isinstance(event, Waited) and event.step == 3)
    ]
    assert order.index("valid-count-landed") > order.index("kernel:layer.2@3")
    assert order.index("input-prep-guard") < order.index("h2d:input_ids@3")


def test_with_prefix_caching_the_counts_are_waited_for_before_the_forward_pass() -> None:
    # docs/mechanism.md#step: with columns the host waits for the counts before the forward pass.
    trace = checker("three-row-cycle").execute().trace
    order = [
        event.name if isinstance(event, OpRecord) else event.edge
        for event in trace.events
        if isinstance(event, OpRecord | Waited) and event.step == 3
    ]
    assert order.index("accepted-landed") < order.index("kernel:layer.0@3")


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_depth_is_the_number_of_steps_in_flight(depth: int) -> None:
    base = scenario(STEADY)
    deep = msgspec.structs.replace(base, engine=msgspec.structs.replace(base.engine, depth=depth))
    device = Watching(lanes_of(deep), chooser=HoldChooser(LATE))
    engine = AsyncEngine(deep, device, truth=truth(deep))
    most = 0
    for step in range(8):
        engine.step(step)
        most = max(most, engine.frames_in_flight)
    assert most == depth - 1  # after a step its oldest frame has been processed


def test_every_wait_names_a_declared_edge() -> None:
    declared = {edge.name for edge in edges.EDGES}
    for name in (STEADY, "three-row-cycle", "scheduling-gap"):
        trace = checker(name).execute().trace
        waited = {event.edge for event in trace.events if isinstance(event, Waited)}
        assert waited <= declared
    assert len(declared) == len(edges.EDGES)


def test_every_pinned_buffer_is_covered_by_a_declared_edge() -> None:
    covered = {buffer for edge in edges.EDGES for buffer in edge.buffers}
    for name in (STEADY, "three-row-cycle"):
        for event in checker(name).execute().trace.events:
            if isinstance(event, HostAccess):
                assert event.access.buffer in covered
