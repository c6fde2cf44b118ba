"""Drawn programs of the model on a GPU, under latches and in natural timing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from axioms import outcomes
from conformance import SCHEDULES, run_on
from litmus_run import LITMUS_LANES
from modelled import EPILOGUE, as_litmus, drawn_program
from racegate.device.chooser import HoldChooser
from racegate.device.cuda.device import CudaDevice
from racegate.device.cuda.pacing import Pace, Pacing
from racegate.device.cuda.torch import open_cuda
from racegate.history.schedule import Schedule


class Count(msgspec.Struct, kw_only=True):
    """Programs on the GPU. wrong: outcomes that the model does not allow, with their programs"""

    first: int
    programs: int = 0
    runs: int = 0
    several: int = 0
    seen: int = 0
    allowed: int = 0
    unrealised: int = 0
    wrong: list[str] = msgspec.field(default_factory=list)


def programs_on_gpu(*, first: int, count: int) -> Count:
    """On the GPU of this machine."""
    return programs_on(open_cuda(), first=first, count=count)


def programs_on(driver: Any, *, first: int, count: int) -> Count:
    """Runs drawn programs under every schedule of one stream or all late, and in natural timing."""
    total = Count(first=first)
    for seed in range(first, first + count):
        whole = (*drawn_program(seed), *EPILOGUE)
        text = "\n".join(line for _, line in as_litmus(whole))
        allowed, seen = outcomes(whole), set()
        for pacing in (Pacing.EAGER, Pacing.NATURAL):
            for schedule in SCHEDULES:
                outcome, trace = run_on(_maker(driver, pacing), text, schedule)
                seen.add(outcome)
                total.runs += 1
                total.unrealised += sum(hold.realised != hold.matched for hold in trace.holds)
        total.programs += 1
        total.several += len(allowed) > 1
        total.seen += len(seen)
        total.allowed += len(allowed)
        total.wrong += [f"seed {seed}: {outcome}" for outcome in sorted(seen - allowed)]
    return total


def _maker(driver: Any, pacing: Pacing) -> Callable[[Schedule], CudaDevice]:
    return lambda schedule: CudaDevice(
        LITMUS_LANES, driver, pace=Pace(pacing), chooser=HoldChooser(schedule)
    )
