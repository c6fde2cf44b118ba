"""The survey of packages: its pages are those of its files, and say what was expected."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import programs
import pytest
from programs.survey import (
    Finding,
    GpuRun,
    Program,
    gpu_runs,
    is_expected,
    load,
    page_of,
    table_of,
)

from racegate.targets.program.workflow.witness import PROGRAM_WITNESSES

HERE = Path(programs.__file__ or "").parent
OUT = HERE.parent / "survey"
SURVEY = load()
ON_GPU = gpu_runs(OUT.parent)
RACY = [program for program in SURVEY.programs if program.found is Finding.REAL]


def report_of(program: Program) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((OUT / f"{program.name}.json").read_text())
    return found


def test_every_program_was_judged_and_was_what_it_is_said_to_be() -> None:
    names = [program.name for program in SURVEY.programs]
    assert len(set(names)) == len(names)
    for program in SURVEY.programs:
        assert (HERE / f"{program.script}.py").is_file(), program.name
        report = report_of(program)
        assert is_expected(program, report), program.name
        assert report["releases"] == dict(one.split("==") for one in program.packages)


def test_the_table_is_up_to_date_with_the_files() -> None:
    reports = {program.name: report_of(program) for program in SURVEY.programs}
    assert (OUT.parent / "survey.md").read_text() == table_of(SURVEY.programs, reports, ON_GPU)
    made = {path.name.removesuffix(".json") for path in OUT.glob("*.json")}
    assert {name for name in made if not name.endswith(".witness")} == set(reports)


@pytest.mark.parametrize("program", RACY, ids=[program.name for program in RACY])
def test_a_race_has_its_page_and_a_witness_that_says_the_same(program: Program) -> None:
    report = report_of(program)
    assert program.harm, "a page says what a user sees"
    assert (OUT / f"{program.name}.md").read_text() == page_of(
        program, report, ON_GPU.get(program.name, GpuRun())
    )
    witness = PROGRAM_WITNESSES.load(OUT / f"{program.name}.witness.json")
    assert witness.argv == tuple(report["command"][6:])
    assert witness.signature in {finding["signature"] for finding in report["findings"]}
