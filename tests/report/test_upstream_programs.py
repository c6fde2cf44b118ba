"""The page of a program's finding for those who maintain a library."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from racegate.cli.app import app
from racegate.history.finding import Hazard, Race, Side
from racegate.history.outcome import SCHEMA
from racegate.jobs.versions.cells import CellReport, ScenarioReport
from racegate.report.objects import HistoryObject
from racegate.report.published.programs import (
    UpstreamFacts,
    load_facts,
    load_range,
    upstream_page,
)
from racegate.scenario.errors import BadInputError
from racegate.targets.program.repairs.proof import ProgramRepair, PutIn, UnrepairedRace
from racegate.targets.program.repairs.upstream import PlainTestReport, UpstreamMaterial
from repository import ROOT

SIDE = Side(
    operation="d2h",
    label="d2h@grad_scaler.py:step#1",
    lane="the default stream",
    is_host=False,
    is_write=True,
    stack=(("torch/amp/grad_scaler.py", 443, "GradScaler.step"),),
)
RACE = Race(
    signature="a" * 12,
    hazard=Hazard.READ_AFTER_WRITE,
    buffer="found_inf",
    nbytes=4,
    count=1,
    first=SIDE,
    second=msgspec.structs.replace(SIDE, operation="host read", lane="the host", is_write=False),
    edge="wait for it",
    pairs=(),
)
EDGE = PutIn(
    kind="stream",
    waiter="host",
    words="stream.synchronize()",
    operations=3,
    repairs=(RACE.signature,),
    without=(RACE.signature,),
)
REPAIR = ProgramRepair(
    argv=("scaler.py",),
    before="1 conflict in 14 events",
    after="PROVED",
    conflicts=(RACE.signature,),
    edges=(EDGE,),
    diff="--- a.py\n+++ a.py\n@@ -1 +1,2 @@\n a\n+b\n",
)
FACTS = UpstreamFacts(package="torch", harm="a step is taken", public="none", not_shown=("more",))
TEST = PlainTestReport(text="REPAIRED = 1", exit_code=0)


def page(
    repair: ProgramRepair = REPAIR, test: PlainTestReport = TEST, file: str = "test_a.py"
) -> str:
    material = UpstreamMaterial(
        race=RACE,
        holds=("d2h@grad_scaler.py:step#1 until forced",),
        changes=("value steps is 1; under the hold 0",),
        repair=repair,
        test=test,
        torch_version="2.14.1",
    )
    return upstream_page(
        material, FACTS, version="2.14.1", versions="all", command="scaler.py", test=file
    )


def test_the_page_has_the_parts_of_a_report() -> None:
    text = page()
    assert text.startswith("# torch 2.14.1: a step is taken\n\nall\n")
    for part in (
        "The first: d2h writes it on the default stream.\n\n    torch/amp/grad_scaler.py:443 in",
        "The second: host read reads it on the host.",
        "    value steps is 1; under the hold 0\n",
        "```diff\n--- a.py\n+++ a.py\n@@ -1 +1,2 @@\n a\n+b\n```\n",
        "- Price: the host waits, for 3 operations that it did not know of. Without this edge 1 of",
        "[test_a.py](test_a.py) needs torch and cuda-bindings alone.",
        "it passes.",
        "## On a GPU\n\nNot run on a GPU.",
        "- How often the wrong order comes by itself is unknown",
        "- more",
    ):
        assert part in text


def test_what_is_not_there_has_its_reason() -> None:
    left = UnrepairedRace(signature=RACE.signature, buffer="found_inf", reason="no name there")
    bare = msgspec.structs.replace(REPAIR, edges=(), left=(left,), diff="")
    text = page(bare, PlainTestReport(why_not="the finding needs two holds"), "")
    assert "No edge was found: no name there." in text
    assert "There is none: the finding needs two holds." in text
    assert "```diff" not in text


def test_the_range_is_what_a_history_says(tmp_path: Path) -> None:
    one = ScenarioReport(
        verdict="DIVERGENT", steps=0, events=1, runs=1, is_complete=True, cpu_s=0.1
    )
    cells = (
        CellReport(release="1.0", scenarios={"a.py": one}),
        CellReport(release="1.1", cannot="no wheel"),
    )
    found = HistoryObject(
        schema=SCHEMA, target="timm", versions=("1.0", "1.1"), names=("a.py",), cells=cells
    )
    (tmp_path / "history.json").write_bytes(msgspec.json.encode(found))
    assert load_range(tmp_path / "history.json") == "timm: 1.0 DIVERGENT, 1.1 cannot be run"


def test_facts_are_read_strictly(tmp_path: Path) -> None:
    (tmp_path / "facts.toml").write_text('package = "torch"\nharm = "x"\npublic = "y"\ncolour = 1')
    with pytest.raises(BadInputError, match="colour"):
        load_facts(tmp_path / "facts.toml")


@pytest.mark.parametrize(
    "words", [["--upstream", "a.json"], ["--facts", "a.toml"], ["--markdown", "a.md"]]
)
def test_options_of_one_finding_belong_together(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["report", *words])
    assert (done.exit_code, "--upstream" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    "path", sorted((ROOT / "reports" / "upstream").glob("*.md")), ids=lambda path: path.stem
)
def test_a_committed_page_has_its_test_beside_it(path: Path) -> None:
    text = path.read_text()
    facts = load_facts(path.with_suffix(".toml"))
    assert text.startswith(f"# {facts.package} ")
    history = path.with_suffix(".history.json")
    assert not history.exists() or load_range(history) in " ".join(text.split("\n"))
    test = path.with_name(f"test_{path.stem}.py")
    assert test.exists() == (f"[{test.name}]" in text)
