"""What the device itself promises, on a GPU: ordering, latches, evidence, the watchdog."""

from __future__ import annotations

import numpy as np
import pytest

from conformance import RANDOM_PROGRAMS, SCHEDULES, check_inclusion, random_program, run_on
from litmus_programs import ALL
from litmus_run import EDGE, LITMUS_LANES
from racegate.device.chooser import HoldChooser
from racegate.device.cuda.device import CudaDevice
from racegate.device.cuda.pacing import Pace, Pacing
from racegate.device.cuda.torch import TorchDriver
from racegate.device.virtual.device import VirtualDevice
from racegate.history.schedule import Schedule, parse_schedule

PROGRAMS = {litmus.name: litmus.program for litmus in ALL} | {
    name: random_program(name) for name in RANDOM_PROGRAMS
}
LANES = ("main", "copy")
ROWS = 1024


def device_on(driver: TorchDriver, schedule: Schedule, *, pacing: Pacing) -> CudaDevice:
    return CudaDevice(LITMUS_LANES, driver, pace=Pace(pacing), chooser=HoldChooser(schedule))


def virtual(schedule: Schedule) -> VirtualDevice:
    return VirtualDevice(LITMUS_LANES, chooser=HoldChooser(schedule))


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_outcomes_stay_inside_the_allowed_ones(program: str, driver: TorchDriver) -> None:
    check_inclusion(lambda s: device_on(driver, s, pacing=Pacing.NATURAL), program, times=5)


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_paced_eagerly_it_is_the_virtual_device(program: str, driver: TorchDriver) -> None:
    for schedule in SCHEDULES:
        chooser = HoldChooser(schedule)
        expected = run_on(
            lambda s, c=chooser: VirtualDevice(LITMUS_LANES, chooser=c), program, schedule
        )
        found = run_on(lambda s: device_on(driver, s, pacing=Pacing.EAGER), program, schedule)
        assert found == expected


class Held:
    """A copy to the host that is held until the host has done `look` at step 1."""

    def __init__(self, driver: TorchDriver, *, pacing: Pacing, patience_s: float) -> None:
        hold = parse_schedule(["d2h:value@0 until host:look@1"])
        self.device = CudaDevice(
            LANES, driver, pace=Pace(pacing, patience_s), chooser=HoldChooser(hold)
        )
        stream = self.device.stream("main")
        source = self.device.constant("five", np.full(ROWS, 5, np.int32))
        self.landing = self.device.host_buffer("landing", (ROWS,), np.int32)
        self.landing.write(np.zeros(ROWS, np.int32))
        self.landed = self.device.event("landed")
        self.device.download(stream, self.landing, source, "value", step=0, rows=ROWS)
        self.device.record(stream, self.landed)

    def look(self, *, step: int) -> set[int]:
        with self.device.action("look", step=step):
            return set(self.landing.peek().tolist())


@pytest.mark.parametrize("pacing", list(Pacing))
def test_a_held_copy_lands_at_its_point_and_there_is_evidence(
    pacing: Pacing, driver: TorchDriver
) -> None:
    for _ in range(20):
        held = Held(driver, pacing=pacing, patience_s=10.0)
        for _ in range(1000):
            assert held.look(step=0) == {0}
        held.look(step=1)
        held.device.wait_host(held.landed, EDGE, step=1)
        assert held.look(step=2) == {5}
        (hold,) = held.device.finish().holds
        assert (hold.matched, hold.realised) == (1, 1)
        assert not held.device.has_expired


@pytest.mark.parametrize("pacing", list(Pacing))
def test_the_watchdog_ends_a_run_whose_latch_nobody_opens(
    pacing: Pacing, driver: TorchDriver
) -> None:
    held = Held(driver, pacing=pacing, patience_s=0.5)
    driver.drain()  # as a call that waits for the whole device would
    assert held.device.has_expired
    assert held.look(step=0) == {5}
    held.look(step=1)
    (hold,) = held.device.finish().holds
    assert (hold.matched, hold.realised) == (1, 0)
