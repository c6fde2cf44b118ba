"""Which release of a package brought a race, or took it out: asked of cells, without a device."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from racegate.history.exit_code import ExitCode
from racegate.interpose.errors import BadInput
from racegate.jobs.versions.bisecting import ReleaseRange, bisect_releases
from racegate.jobs.versions.cells import CellReport, ScenarioReport
from racegate.jobs.versions.running import Keep
from racegate.report.dashboard.versions import render_origin

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
