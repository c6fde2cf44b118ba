"""Every litmus program, judged on the virtual device and searched."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from litmus.registry import Expected, load

from cuda_torch import needs_litmus
from racegate.interpose.build import find_toolkit
from racegate.interpose.outcome import DeviceKind, Ending
from racegate.targets.common.server import open_server
from racegate.targets.program.judge import judge_on
from racegate.targets.program.launch import DeviceServer, Program, environment_for

HERE = Path(__file__).parent
PROGRAMS = load()
THEMES = list(dict.fromkeys(program.theme for program in PROGRAMS.values()))
RUNS_MAX = 24
# Two threads of the host race for real: the run that others are compared with may have the late
# value itself. That they race is seen in every run.
BY_CHANCE = ("thread_fills_without_join", "thread_host_write_without_join")


class Shown(NamedTuple):
    """How a program ended, what one run of it was found to be, and whether a hold changed what it
    observed.
    """

    ending: Ending
    verdict: Expected
    diverges: bool


@pytest.fixture(scope="module")
def litmus_device() -> Iterator[DeviceServer]:
    environment = environment_for(find_toolkit(), DeviceKind.VIRTUAL)
    command = [sys.executable, str(HERE / "litmus_device.py"), ""]
    with open_server(command, environment, what="the device of litmus programs") as server:
        yield DeviceServer(server)


def shown_by(device: DeviceServer, theme: str, name: str) -> Shown:
    program = Program((str(HERE / "litmus_one.py"), theme, name), timeout_s=120)
    found = judge_on(device, program, explores=True, runs_max=RUNS_MAX, is_quiet=True)
    return Shown(
        found.shown.ending,
        Expected.RACY if found.shown.findings else Expected.SILENT,
        name not in BY_CHANCE and any(one.landing for one in found.judged),
    )


@needs_litmus
@pytest.mark.parametrize("theme", THEMES)
def test_every_program_has_its_verdict_and_diverges_if_it_can_be_observed(
    litmus_device: DeviceServer, theme: str
) -> None:
    programs = [program for program in PROGRAMS.values() if program.theme == theme]
    shown = {program.name: shown_by(litmus_device, theme, program.name) for program in programs}
    assert shown == {
        program.name: Shown(
            Ending.FINISHED,
            program.expected,
            program.observable and program.name not in BY_CHANCE,
        )
        for program in programs
    }
