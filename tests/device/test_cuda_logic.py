"""CudaDevice on a driver without a GPU: the same books, the same outcomes as the virtual device."""

from __future__ import annotations

from random import Random

import pytest
from litmus_programs import ALL, Litmus
from sync_driver import SyncDriver

from racegate.device.chooser import HoldChooser
from racegate.device.cuda import CudaDevice
from racegate.device.litmus import LITMUS_LANES, LitmusRun, Outcome
from racegate.device.pacing import Pacing
from racegate.device.virtual import VirtualDevice
from racegate.schedule import LATE, Schedule, lane_late
from racegate.trace import Trace

SCHEDULES = (Schedule(), LATE, lane_late("s0"), lane_late("s1"))


def on_cuda(
    program: str, schedule: Schedule, *, driver: SyncDriver, pacing: Pacing = Pacing.EAGER
) -> tuple[Outcome, Trace]:
    device = CudaDevice(LITMUS_LANES, driver, pacing=pacing, chooser=HoldChooser(schedule))
    try:
        return LitmusRun(device).run(program)
    finally:
        device.close()


def on_virtual(program: str, schedule: Schedule) -> tuple[Outcome, Trace]:
    return LitmusRun(VirtualDevice(LITMUS_LANES, chooser=HoldChooser(schedule))).run(program)


@pytest.mark.parametrize("litmus", ALL, ids=lambda litmus: litmus.name)
def test_paced_eagerly_it_is_the_virtual_device(litmus: Litmus) -> None:
    for schedule in SCHEDULES:
        expected = on_virtual(litmus.program, schedule)
        for random in (None, Random(1), Random(2)):
            assert on_cuda(litmus.program, schedule, driver=SyncDriver(random=random)) == expected


@pytest.mark.parametrize("litmus", ALL, ids=lambda litmus: litmus.name)
def test_left_to_itself_it_stays_inside_the_allowed_outcomes(litmus: Litmus) -> None:
    for schedule in SCHEDULES:
        trace_expected = on_virtual(litmus.program, schedule)[1]
        for seed in range(12):
            driver = SyncDriver(random=Random(seed))
            outcome, trace = on_cuda(litmus.program, schedule, driver=driver, pacing=Pacing.NATURAL)
            assert outcome in litmus.allowed
            if " e: " not in litmus.program:  # what follows a branch depends on its outcome
                assert len(trace.events) == len(trace_expected.events)
