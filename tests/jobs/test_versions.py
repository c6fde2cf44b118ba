"""Version after version: which there are, what is kept, what is said of one that cannot be run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from cuda_torch import needs_cuda_torch
from racegate.cli.app import app
from racegate.interpose.errors import BadInput
from racegate.jobs.foreign.releases import OpenedEngine
from racegate.jobs.versions import engines
from racegate.jobs.versions.cells import CellReport, ScenarioReport, first_line, read_cell
from racegate.jobs.versions.chosen import available, chosen
from racegate.jobs.versions.engines import EngineHistory, Environments
from racegate.jobs.versions.kinds import VllmKind
from racegate.jobs.versions.running import Keep, run_history
from racegate.report.dashboard.versions import render_history
from racegate.report.objects import HistoryObject
from racegate.scenario.expect import Expect
from racegate.scenario.spec import Request, Scenario
from racegate.targets.common.cell import EngineCell
from racegate.targets.common.environment import EnginePackage, Environment, cache_folder
from racegate.targets.common.setup.progress import Say
from racegate.targets.vllm.cell import Cell
from racegate.targets.vllm.wire import ModelRunner, StateMode
from small_engine import Wait
from small_release import SmallReleases
from tiny_package import PACKAGE, PROGRAM, TINY, wheel

SCENARIO = Scenario(
    name="small",
    title="one step",
    requests=(Request(name="A", arrive=0, prompt=(1,), max_tokens=1),),
    expect=Expect(reorder_moves=1),
)


class TestVersions:
    """Which versions are meant."""

    def test_a_range_is_in_the_order_of_versions(self, index: Path) -> None:
        assert available(PACKAGE) == ("1.0", "1.2", "1.10")
        assert chosen("1.2..1.10", PACKAGE) == ("1.2", "1.10")
        assert chosen("..1.2", PACKAGE) == ("1.0", "1.2")
        assert chosen("1.2..", PACKAGE) == ("1.2", "1.10")

    def test_a_list_is_taken_as_it_is(self) -> None:
        assert chosen("2.0b1, 1.0", "nothing-is-asked") == ("2.0b1", "1.0")

    @pytest.mark.parametrize(
        ("text", "package", "said"),
        [
            ("1.1..1.2", PACKAGE, "has no version 1.1 here; it has 1.0, 1.2, 1.10"),
            ("1.10..1.2", PACKAGE, "1.10 is later than 1.2"),
            ("1.0..2.0", "racegate-none", "pip finds no versions of racegate-none"),
        ],
    )
    def test_what_is_not_there_is_said(
        self, index: Path, text: str, package: str, said: str
    ) -> None:
        with pytest.raises(BadInput, match=said):
            chosen(text, package)


class Scripted:
    """A target of two ways to run each version. fails: version -> why it cannot be set up
    stops: version -> the scenario behind which its engine ends
    """

    def __init__(self, *, fails: dict[str, str], stops: dict[str, str]) -> None:
        self.names = ("one", "two")
        self.did: list[str] = []
        self._fails, self._stops = fails, stops

    def cells(self, version: str) -> Sequence[CellReport]:
        return [CellReport(release=version, model=model) for model in ("big", "small")]

    def set_up(self, version: str, say: Say) -> None:
        self.did.append(f"set up {version}")
        if version in self._fails:
            raise BadInput(self._fails[version])

    def remove(self, version: str) -> None:
        self.did.append(f"remove {version}")

    def judge(self, cell: CellReport, names: Sequence[str], keep: Keep) -> None:
        for name in names:
            self.did.append(f"{cell.release} {cell.model} {name}")
            one = ScenarioReport(
                verdict="PROVED", steps=1, events=2, runs=0, is_complete=False, cpu_s=0.5
            )
            scenarios = cell.scenarios | {name: one}
            cell = msgspec.structs.replace(cell, scenarios=scenarios)
            keep(cell)
            if self._stops.get(cell.release) == name:
                raise BadInput("the engine ended")


class TestRunning:
    """What is run, and what is kept."""

    def test_what_is_there_is_kept_and_what_is_missing_is_run(self, tmp_path: Path) -> None:
        first = Scripted(fails={}, stops={})
        first.names = ("one",)
        said: list[str] = []
        run_history(first, ["1"], tmp_path, said.append)
        assert said == [f"1 {m} one: PROVED, 0 runs, 0.5 CPU s" for m in ("big", "small")]
        again = Scripted(fails={}, stops={})
        run_history(again, ["1", "2"], tmp_path, said.append)
        assert again.did[:4] == ["set up 1", "1 big two", "1 small two", "remove 1"]
        assert len(again.did) == 4 + 6
        last = Scripted(fails={}, stops={})
        run_history(last, ["1", "2"], tmp_path, said.append)
        assert last.did == []
        assert said[-2:] == ["1: kept", "2: kept"]

    def test_a_version_that_cannot_be_set_up_says_why_in_each_cell(self, tmp_path: Path) -> None:
        why = "pip install x ... failed:\n  Looking\n  ERROR: No matching distribution for x==1"
        target = Scripted(fails={"1": why}, stops={})
        run_history(target, ["1", "2"], tmp_path, lambda text: None)
        for model in ("big", "small"):
            cell = read_cell(tmp_path / f"1-{model}.json")
            assert cell is not None
            assert cell.cannot == "ERROR: No matching distribution for x==1"
        assert target.did[:2] == ["set up 1", "set up 2"]

    def test_an_engine_that_ends_keeps_what_was_judged(self, tmp_path: Path) -> None:
        run_history(Scripted(fails={}, stops={"1": "one"}), ["1"], tmp_path, lambda text: None)
        cell = read_cell(tmp_path / "1-big.json")
        assert cell is not None
        assert (list(cell.scenarios), cell.cannot) == (["one"], "the engine ended")

    def test_a_file_that_is_no_cell_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "1-big.json").write_text('{"release": "1", "colour": "red"}')
        with pytest.raises(BadInput, match="no cell of a history"):
            run_history(Scripted(fails={}, stops={}), ["1"], tmp_path, lambda text: None)


class SmallPackage(EnginePackage):
    """Of a release that is a folder."""

    def set_up(self, release: str, say: Say, **_: object) -> Environment:
        folder = cache_folder(self.name) / release
        folder.mkdir(parents=True, exist_ok=True)
        return Environment(release, folder)


class SmallKind:
    """An engine of one way to run it."""

    packaging = SmallPackage(
        tried=("0.1", "9.9"),
        title="Small",
        name="small",
        packages=(),
        module="",
        left_out=frozenset(),
        families=(),
    )

    def cells(self, release: str) -> Sequence[CellReport]:
        return [CellReport(release=release, runner="v1", mode="none")]

    def cell(self, report: CellReport) -> EngineCell:
        return Cell(release=report.release, runner=ModelRunner.V1, mode=StateMode.NONE)


@contextmanager
def small_release(cell: EngineCell, *, log: Path) -> Iterator[OpenedEngine]:
    """Releases of which the first is broken, and the last does not start."""
    if cell.release == "9":
        log.write_text("Traceback\nImportError: no kernel\n")
        raise BadInput("the engine did not start; its message is above")
    wait = Wait.BEHIND if cell.release == "1" else Wait.BEFORE
    with SmallReleases(wait)(cell) as opened:
        yield opened


def test_an_engine_is_judged_release_by_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (cache_folder("small") / "1").mkdir(parents=True)
    monkeypatch.setattr(engines, "open_release", small_release)
    history = EngineHistory(SmallKind(), [SCENARIO], environments=Environments.REMOVED)
    versions, folder = ("1", "2", "9"), tmp_path / "cells"
    folder.mkdir()
    run_history(history, versions, folder, lambda text: None)
    cells = tuple(read_cell(folder / f"{version}-v1-none.json") for version in versions)
    assert [one and one.scenarios["small"].verdict for one in cells[:2]] == ["DIVERGENT", "PROVED"]
    assert cells[2] is not None
    assert cells[2].cannot.endswith("message is above: ImportError: no kernel")
    there = [path.name for path in cache_folder("small").iterdir()]
    assert there == ["1"], "what was made for the history is gone, what was there is not"


def test_the_table_says_what_cannot_be_run_and_why() -> None:
    one = ScenarioReport(
        verdict="DIVERGENT", steps=1, events=2, runs=3, is_complete=True, cpu_s=0.5
    )
    cells = (
        CellReport(release="1", model="big", torch="2.15.0+cu132", scenarios={"a": one}),
        CellReport(release="2", model="big", cannot="it | does not start"),
    )
    found = HistoryObject(
        schema="s", target="sglang", versions=("1", "2"), names=("a",), cells=cells
    )
    lines = render_history(found).splitlines()
    assert lines[0] == "| version | run as | torch | a |"
    assert lines[2] == "| 1 | big | 2.15.0 | DIVERGENT, 3 runs |"
    assert lines[3] == "| 2 | big |  | cannot be run |"
    assert lines[5] == "* 2 big: it &#124; does not start"


def test_the_line_of_an_error_that_is_kept_names_no_place_of_this_machine() -> None:
    assert first_line("/a/b/site-packages/x.py: no\nmore") == "x.py: no"
    counted = "1 validation error for Config\n  must be 3 [type=value_error]\n"
    assert first_line(counted) == "1 validation error for Config must be 3"


REPORTS = Path(__file__).parents[2] / "reports"


@pytest.mark.parametrize(
    "path", sorted((REPORTS / "vllm" / "cells").glob("*.json")), ids=lambda path: path.stem
)
def test_a_committed_cell_is_gone_on_with(path: Path) -> None:
    """Its name is that of a cell that the command would make, and nothing in it is unknown."""
    cell = read_cell(path)
    assert cell is not None
    assert path.name in [one.file for one in VllmKind().cells(cell.release)]


@pytest.mark.parametrize(("engine", "cells"), [("vllm", 1), ("sglang", 2)])
def test_a_release_that_is_nowhere_is_said_in_the_table(
    engine: str, cells: int, index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["history", engine, "--versions", "0.0.1", "--json", "-"]
    some = ["--runner", "v1", "--cache-mode", "none"] if engine == "vllm" else []
    done = CliRunner().invoke(app, [*words, *some])
    assert done.exit_code == 4, done.output
    found = msgspec.json.decode(done.stdout, type=HistoryObject)
    assert len(found.cells) == cells
    assert all("No matching distribution" in cell.cannot for cell in found.cells)
    assert len(list((tmp_path / f"history-{engine}").iterdir())) == cells


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["vllm", "--versions", "1", "--scenario", "none"], "no scenario none"),
        (["none.py", "--package", "x", "--versions", "1"], "none.py does not exist"),
        (["vllm", "--versions", "1", "--package", "x"], "No such option"),
    ],
)
def test_what_cannot_be_meant_is_refused(words: list[str], said: str) -> None:
    done = CliRunner().invoke(app, ["history", *words])
    assert done.exit_code == 2
    assert said in done.stderr


@needs_cuda_torch
@pytest.mark.timeout(900)
def test_a_program_on_two_versions_of_a_package(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The faulty one, the repaired one, and one that asks for what is not there."""
    wheel(index, "3.0", TINY.format(waits=False))
    wheel(index, "3.1", TINY.format(waits=True))
    wheel(index, "3.2", TINY, "Requires-Dist: racegate-none==4\n")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "program.py").write_text(PROGRAM)
    words = ["history", "program.py", "--package", PACKAGE, "--versions", "3.0..", "--json", "-"]
    done = CliRunner().invoke(app, [*words, "--out", "cells", "--markdown", "table.md"])
    assert done.exit_code == 4, done.output
    found = msgspec.json.decode(done.stdout, type=HistoryObject)
    assert found.versions == ("3.0", "3.1", "3.2")
    faulty, repaired, missing = found.cells
    assert faulty.scenarios["program.py"].verdict == "DIVERGENT"
    assert repaired.scenarios["program.py"].verdict == "no conflict"
    assert "racegate-none" in missing.cannot and not missing.scenarios
    assert "| 3.0 | " in (tmp_path / "table.md").read_text()
    again = CliRunner().invoke(app, [*words, "--out", "cells"])
    assert json.loads(again.stdout) == json.loads(done.stdout)
    assert again.stderr.count("kept") == 3
