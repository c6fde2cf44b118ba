"""A faulty and a repaired release of a program that nobody here wrote, told apart."""

from __future__ import annotations

import json
import os
from pathlib import Path

import programs
import pytest
from programs.catalogue import CASES, TRANSFORMERS, Case, Expected
from programs.of_ranks import CASES as RANK_CASES
from programs.of_ranks import table_of as ranks_table_of
from programs.run_all import command_of, is_right, judge, table_of

import cuda_torch
from racegate.targets.program.environment import environment_for

FOLDER = os.environ.get("RACEGATE_PROGRAMS", "")


def why_not() -> str:
    if not FOLDER:
        return (
            "two releases of transformers are installed for it: `make programs`, or set "
            "RACEGATE_PROGRAMS to a folder for their environments"
        )
    return cuda_torch.why_not()


@pytest.mark.skipif(bool(why_not()), reason=why_not() or "it can run")
@pytest.mark.parametrize("case", TRANSFORMERS, ids=[case.name for case in TRANSFORMERS])
@pytest.mark.timeout(1200)
def test_the_faulty_release_conflicts_and_the_repaired_one_is_silent(case: Case) -> None:
    python = environment_for(case.releases, Path(FOLDER).absolute())
    found = judge(case, python)
    assert is_right(case, found), found.verdicts.outcome
    assert found.exit_code == (1 if case.expected is Expected.RACY else 0)
    assert found.verdicts.outcome.not_seen == {}


def test_every_case_has_a_script_and_a_name_of_its_own() -> None:
    here = Path(programs.__file__ or "").parent
    assert len({case.name for case in CASES}) == len(CASES)
    for case in CASES:
        assert (here / case.script).is_file(), case.name
        assert command_of(case)[-len(case.arguments) - 1 :] == [case.script, *case.arguments]


def test_every_silent_release_has_a_racy_twin_or_no_stream_of_its_own() -> None:
    """A silence that nothing could break would say nothing."""
    racy = {case.script for case in CASES if case.expected is Expected.RACY}
    one_stream = {"accelerate_offload.py", "save_on_cpu.py", "data_loader.py"}
    assert {case.script for case in CASES} - racy == one_stream


def test_the_page_is_up_to_date_with_its_files() -> None:
    reports = Path(__file__).parents[2] / "reports" / "interposer"
    files = sorted((reports / "programs").glob("*.json"))
    page = table_of([json.loads(path.read_text()) for path in files])
    assert (reports / "programs.md").read_text() == page
    assert {path.stem for path in files} == {case.name for case in CASES}


def test_every_program_of_ranks_has_a_faulty_and_a_repaired_release() -> None:
    found: dict[str, set[Expected]] = {}
    for case in RANK_CASES:
        assert (Path(programs.__file__ or "").parent / f"{case.script}.py").is_file()
        found.setdefault(case.public, set()).add(case.expected)
    assert all(both == set(Expected) for both in found.values())


def test_the_page_of_ranks_is_up_to_date_and_as_expected() -> None:
    reports = Path(__file__).parents[2] / "reports" / "interposer"
    told = json.loads((reports / "ranks.json").read_text())
    assert (reports / "ranks.md").read_text() == ranks_table_of(told)
    assert [one["name"] for one in told] == [case.name for case in RANK_CASES]
    for one in told:
        assert bool(one["findings"]) == (one["expected"] == Expected.RACY), one["name"]
