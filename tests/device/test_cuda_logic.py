"""CudaDevice on a driver without a GPU: the queues and outcomes of the virtual device."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from conformance import RANDOM_PROGRAMS, SCHEDULES, check_inclusion, random_program, run_on
from litmus_programs import ALL
from litmus_run import LITMUS_LANES
from numpy_backend import numpy_backend
from racegate.device.chooser import HoldChooser
from racegate.device.cuda.device import CudaDevice
from racegate.device.cuda.pacing import Pace, Pacing
from racegate.device.protocol import writes
from racegate.device.virtual.device import VirtualDevice
from racegate.history.schedule import Hold, Schedule
from racegate.history.trace import OpRecord
from sync_driver import SyncDriver

PROGRAMS = {litmus.name: litmus.program for litmus in ALL} | {
    name: random_program(name) for name in RANDOM_PROGRAMS
}


def virtual(schedule: Schedule) -> VirtualDevice:
    return VirtualDevice(LITMUS_LANES, chooser=HoldChooser(schedule))


def cuda(schedule: Schedule, *, seed: int | None, pacing: Pacing = Pacing.EAGER) -> CudaDevice:
    driver = SyncDriver(numpy_backend(), random=None if seed is None else Random(seed))
    return CudaDevice(LITMUS_LANES, driver, pace=Pace(pacing), chooser=HoldChooser(schedule))


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_paced_eagerly_it_is_the_virtual_device(program: str) -> None:
    # Outcome, trace, and how many operations each hold kept, on whatever the device makes of it.
    for schedule in SCHEDULES:
        expected = run_on(virtual, program, schedule)
        for seed in (None, 1, 2):
            found = run_on(lambda s, seed=seed: cuda(s, seed=seed), program, schedule)
            assert found == expected


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_left_to_itself_it_stays_inside_the_allowed_outcomes(program: str) -> None:
    for seed in range(4):
        check_inclusion(
            lambda s, seed=seed: cuda(s, seed=seed, pacing=Pacing.NATURAL), program, times=1
        )


def test_left_to_itself_it_shows_races() -> None:
    # A driver that could do one thing only would pass every inclusion.
    racy = [litmus for litmus in ALL if len(litmus.allowed) > 1]
    assert len(racy) >= 10
    shown = 0
    for litmus in racy:
        seen = set()
        for seed in range(20):
            device = cuda(Schedule(), seed=seed, pacing=Pacing.NATURAL)
            seen.add(run_on(lambda _, device=device: device, litmus.program, Schedule())[0])
        shown += seen == litmus.allowed
    assert shown > len(racy) // 2


RACY = {litmus.name: litmus.program for litmus in ALL if litmus.racy}


@pytest.mark.parametrize("program", RACY.values(), ids=RACY)
def test_what_was_held_comes_after_its_point(program: str) -> None:
    # The point may be an operation for which the host has not waited when it lets the other go.
    _, trace = run_on(virtual, program, Schedule())
    ops = [event.name for event in trace.events if isinstance(event, OpRecord)]
    # What creates buffers comes before the program, and brackets mean rows in a hold.
    names = [name for name in ops if " " not in name and "[" not in name]
    for number, name in enumerate(names):
        for point in names[number + 1 :]:
            schedule = Schedule(holds=(Hold(op=name, until=point),))
            expected = run_on(virtual, program, schedule)
            for seed in (None, 1, 2, 3):
                found = run_on(lambda s, seed=seed: cuda(s, seed=seed), program, schedule)
                assert found == expected


def test_a_capture_rehearses_with_constants_that_have_come() -> None:
    """A kernel takes rows by them: what stands there before may be no row at all."""
    seen = []

    def note(k: Any, target: Any, index: Any) -> None:
        seen.append(index.tolist())

    for seed in range(8):
        device = cuda(Schedule(), seed=seed, pacing=Pacing.NATURAL)
        main = device.stream(LITMUS_LANES[0])
        target = device.device_buffer("target", (2,), np.int32, stream=main)
        index = device.constant("index", np.array([1, 0], np.int32))
        with device.capture(main, "g"):
            uses, given = (writes(target),), (index,)
            device.launch(main, note, "note", step=0, uses=uses, constants=given)
    assert seen == [[1, 0]] * 8
