"""Which release of a package brought a race, or took it out: asked of cells, without a device."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from racegate.history.exit_code import ExitCode
from racegate.history.finding import Verdict
from racegate.interpose.errors import BadInput
from racegate.interpose.outcome import Ending
from racegate.jobs.triage.bisect import Shows
from racegate.jobs.versions.bisecting import ReleaseRange, asked_release, bisect_releases
from racegate.jobs.versions.cells import CellReport, ScenarioReport
from racegate.jobs.versions.faulty import FaultyRange, faulty_range
from racegate.jobs.versions.programs import program_report
from racegate.jobs.versions.running import Keep
from racegate.report.dashboard.versions import render_origin, render_range
from racegate.targets.program.result import ProgramResult

VERSIONS = tuple(f"1.{number}" for number in range(9))


class Told:
    """A history whose verdicts are told. asked: versions in their order"""

    names = ("loader.py",)

    def __init__(self, verdicts: dict[str, str]) -> None:
        self._verdicts = verdicts
        self.asked: list[str] = []

    def cells(self, version: str) -> Sequence[CellReport]:
        return (CellReport(release=version),)

    def set_up(self, version: str, say: object) -> None:
        self.asked.append(version)
        if version not in self._verdicts:
            raise BadInput("no wheel for this Python")

    def remove(self, version: str) -> None:
        pass

    def judge(self, cell: CellReport, names: Sequence[str], keep: Keep) -> None:
        report = ScenarioReport(
            verdict=self._verdicts[cell.release],
            steps=0,
            events=1,
            runs=0,
            is_complete=True,
            cpu_s=0.0,
        )
        keep(msgspec.structs.replace(cell, scenarios={"loader.py": report}))


def bisected(verdicts: dict[str, str], folder: Path, *, is_brought: bool = True) -> ReleaseRange:
    order = VERSIONS if is_brought else VERSIONS[::-1]
    return bisect_releases(
        Told(verdicts), order, package="timm", is_brought=is_brought, folder=folder, say=print
    )


def told(racy: Sequence[str], missing: Sequence[str] = ()) -> dict[str, str]:
    return {
        one: "DIVERGENT" if one in racy else "no conflict" for one in VERSIONS if one not in missing
    }


@pytest.mark.parametrize("first", range(1, 9))
def test_the_release_that_brought_it_is_found(first: int, tmp_path: Path) -> None:
    found = bisected(told(VERSIONS[first:]), tmp_path)
    assert (found.good, found.bad) == (VERSIONS[first - 1], VERSIONS[first])
    assert (found.exit_code, len(found.asked) <= 6) == (ExitCode.FINDING, True)
    assert f"timm {VERSIONS[first]} brought it" in render_origin(found)


def test_the_release_that_repaired_it_is_found(tmp_path: Path) -> None:
    found = bisected(told(VERSIONS[:3]), tmp_path, is_brought=False)
    assert (found.bad, found.good) == ("1.2", "1.3")
    assert "timm 1.3 repaired it" in render_origin(found)


def test_releases_that_cannot_be_judged_are_passed_over_and_named(tmp_path: Path) -> None:
    found = bisected(told(VERSIONS[5:], missing=("1.3", "1.4")), tmp_path)
    assert (found.good, found.bad, found.between) == ("1.2", "1.5", ("1.3", "1.4"))
    assert found.exit_code == ExitCode.INCONCLUSIVE
    assert "one of 1.3, 1.4, 1.5" in render_origin(found)


@pytest.mark.parametrize(
    ("unmet", "shows"), [((), Shows.GOOD), (("no work", "of children"), Shows.SKIPPED)]
)
def test_a_program_that_gives_the_device_no_work_is_not_good(
    unmet: tuple[str, ...], shows: Shows
) -> None:
    result = ProgramResult(
        scenario="loader.py",
        device="virtual",
        verdict=Verdict.INCONCLUSIVE if unmet else Verdict.PROVED,
        unmet=unmet,
        ending=Ending.FINISHED,
        exit_code=0,
        observations=(),
    )
    scenarios = {"loader.py": program_report(result, cpu_s=0.0)}
    asked = asked_release(CellReport(release="1.0", scenarios=scenarios), ("loader.py",))
    assert (asked.shows, asked.said) == (shows, "; ".join(unmet) or "no conflict")


def test_what_is_kept_is_not_run_again(tmp_path: Path) -> None:
    bisected(told(VERSIONS[4:]), tmp_path)
    again = Told({})
    bisect_releases(
        again, VERSIONS, package="timm", is_brought=True, folder=tmp_path, say=lambda text: None
    )
    assert again.asked == []


def test_an_end_that_is_not_what_it_is_said_to_be_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"1\.0 is not good, but bad: DIVERGENT"):
        bisected(told(VERSIONS), tmp_path)


def ranged(verdicts: dict[str, str], bad: str, folder: Path) -> FaultyRange:
    return faulty_range(
        Told(verdicts), VERSIONS, bad, package="timm", folder=folder, say=lambda text: None
    )


@st.composite
def spans(draw: st.DrawFn) -> tuple[int, int, int]:
    """Places of the first and last release with the race, and of one of them."""
    first = draw(st.integers(0, len(VERSIONS) - 1))
    last = draw(st.integers(first, len(VERSIONS) - 1))
    return first, last, draw(st.integers(first, last))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(span=spans())
def test_both_ends_are_found_from_any_release_with_the_race(
    span: tuple[int, int, int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    first, last, known = span
    folder = tmp_path_factory.mktemp("cells")
    found = ranged(told(VERSIONS[first : last + 1]), VERSIONS[known], folder)
    assert (found.brought.bad, found.repaired.bad) == (VERSIONS[first], VERSIONS[last])
    assert found.brought.beyond == (VERSIONS[first - 1] if first else "")
    assert found.repaired.beyond == (*VERSIONS, "")[last + 1]
    assert found.exit_code == ExitCode.FINDING


def test_a_race_as_old_as_what_it_is_in_begins_where_it_can_be_judged(tmp_path: Path) -> None:
    found = ranged(told(VERSIONS[3:6], missing=VERSIONS[:3]), "1.4", tmp_path)
    assert (found.brought.bad, found.brought.beyond, found.repaired.beyond) == ("1.3", "1.2", "1.6")
    text = render_range(found)
    assert "1.3 has it, 1.2 cannot be judged: no wheel for this Python" in text
    assert "1.6 repaired it: 1.5 has it, 1.6 has not" in text


def test_an_end_is_one_of_several_where_releases_before_it_cannot_be_judged(tmp_path: Path) -> None:
    found = ranged(told(VERSIONS[4:], missing=("1.2", "1.3")), "1.5", tmp_path)
    assert (found.brought.beyond, found.brought.between) == ("1.1", ("1.2", "1.3"))
    assert found.exit_code == ExitCode.INCONCLUSIVE
    text = render_range(found)
    assert "one of 1.2, 1.3, 1.4 brought it: 1.4 has it, 1.1 has not" in text
    assert "timm: 1.8, the newest, has it" in text


def test_a_range_begins_from_a_release_with_the_race(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"1\.1 is not bad, but good"):
        ranged(told(VERSIONS[3:]), "1.1", tmp_path)
