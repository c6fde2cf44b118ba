"""One suite for every device: what a litmus program may show on it, whatever the device is.

A device is a factory. On the virtual device the outcomes over all schedules are exactly the allowed
ones; any other device must stay inside them, and show the one outcome of a program that has one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any

from all_schedules import all_runs
from litmus_run import LITMUS_LANES, LitmusRun, Outcome
from racegate.device.virtual.device import VirtualDevice
from racegate.history.schedule import LATE, Schedule, lane_late
from racegate.history.trace import Trace
from racegate.oracles.ordering import find_conflicts

MakeDevice = Callable[[Schedule], Any]

SCHEDULES = (Schedule(), LATE, *(lane_late(lane) for lane in LITMUS_LANES))
RANDOM_PROGRAMS = tuple(f"random-{seed}" for seed in range(40))


def run_on(make: MakeDevice, program: str, schedule: Schedule) -> tuple[Outcome, Trace]:
    """Runs a program, and leaves nothing latched behind it."""
    device = make(schedule)
    try:
        return LitmusRun(device).run(program)
    finally:
        if not isinstance(device, VirtualDevice):
            device.close()


@cache
def allowed_outcomes(program: str) -> frozenset[Outcome]:
    """Those of all schedules of the virtual device."""
    runs = all_runs(lambda s: LitmusRun(VirtualDevice(LITMUS_LANES, chooser=s)).run(program))
    return frozenset(outcome for outcome, _ in runs)


def has_conflict(program: str) -> bool:
    """Whether the ordering oracle finds a conflict in the program's run on the virtual device."""
    _, trace = run_on(lambda step: VirtualDevice(LITMUS_LANES), program, Schedule())
    return bool(find_conflicts(trace))


def check_inclusion(make: MakeDevice, program: str, *, times: int) -> set[Outcome]:
    """Runs a program under every schedule; returns what was seen. Every hold must be realised."""
    allowed = allowed_outcomes(program)
    seen = set()
    for schedule in SCHEDULES:
        for _ in range(times):
            outcome, trace = run_on(make, program, schedule)
            assert outcome in allowed, f"{outcome} is not among {sorted(allowed)}: {program}"
            for hold in trace.holds:
                assert hold.realised == hold.matched, f"{hold}: {program}"
            seen.add(outcome)
    assert len(allowed) > 1 or seen == allowed
    return seen


def random_program(name: str) -> str:
    """A small program with two or three streams; no flags, so that nothing can deadlock."""
    random = Random(name)
    events: list[str] = []
    lines = [f"h0[0] = {random.randrange(1, 9)}"]
    for number in range(random.randrange(4, 7)):
        lane = f"s{random.randrange(3 if random.random() < 0.2 else 2)}"
        lines.append(_statement(random, lane, number))
        if random.random() < 0.5:
            events.append(f"e{number}")
            lines.append(f"{lane}: record {events[-1]}")
        if events and random.random() < 0.4:
            lines.append(f"s{random.randrange(2)}: wait {random.choice(events)}")
    if events:
        lines.append(f"wait {random.choice(events)}")
    lines += ["read h0[0]", "read h1[1]"]
    return "\n".join(lines)


def _statement(random: Random, lane: str, number: int) -> str:
    device, other = random.sample(("d0", "d1"), 2)
    host = random.choice(("h0", "h1"))
    return random.choice(
        (
            f"{lane}: {device} = {10 + number}",
            f"{lane}: {device}[{random.randrange(2)}] = {20 + number}",
            f"{lane}: {device} = {other} * 2 + {number}",
            f"{lane}: {device} <- {host}",
            f"{lane}: {host} <- {device}",
            f"{host}[{random.randrange(2)}] = {30 + number}",
        )
    )
