"""Small programs of several ranks on the virtual device, each with what is found in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from rank_programs.registry import THEMES, Expected, load

from cuda_torch import needs_cuda_torch
from racegate.interpose.outcome import Ending
from racegate.targets.program.judge import ProgramVerdict, judge_on
from racegate.targets.program.launch import DeviceServer, Program

HERE = Path(__file__).parent
PROGRAMS = load()
pytestmark = needs_cuda_torch


def found_by(device: DeviceServer, name: str) -> ProgramVerdict:
    one = PROGRAMS[name]
    program = Program((str(HERE / "rank_one.py"), one.theme, name), timeout_s=120, ranks=one.ranks)
    return judge_on(device, program, explores=False, runs_max=1, is_quiet=True)


def expected_of(found: ProgramVerdict) -> Expected:
    """What was found, as a program states it."""
    kinds = {one.kind.value for one in found.disagreements}
    if found.races:
        kinds.add("conflict")
    if kinds:
        return Expected("+".join(sorted(kinds)))
    assert found.shown.ending in (Ending.FINISHED, Ending.FAILED), found.shown.message
    return Expected.SILENT if found.is_finished else Expected.FAILS


@pytest.mark.parametrize("theme", THEMES)
def test_every_program_is_found_to_be_what_it_is(device: DeviceServer, theme: str) -> None:
    programs = [one for one in PROGRAMS.values() if one.theme == theme]
    assert {one.name: expected_of(found_by(device, one.name)) for one in programs} == {
        one.name: one.expected for one in programs
    }
