"""Causes that findings share, and drafts of reports, as a user gets them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from pictured import path_of
from racegate.check.checker import Checker
from racegate.cli.app import app
from racegate.cli.look.triage import causes_of
from racegate.history.schedule import EAGER
from racegate.history.witness import Witness, load_witness, save, sealed
from racegate.jobs.stores.folder import FolderStore
from racegate.jobs.stores.records import KeptFinding
from stored import state, with_subject

RACE = "accepted-copy-after-row-move"
LOGIC = "accepted-count-with-hole"


def found(fault: str, index: int = 0) -> Witness:
    """The witness of a fault, as a campaign names its scenarios."""
    witness = load_witness(path_of(fault))
    scenario = msgspec.structs.replace(witness.scenario, name=f"generated-1-{index}")
    return sealed(msgspec.structs.replace(with_subject(witness, seed=1), scenario=scenario))


def test_findings_that_lack_one_edge_are_one_cause() -> None:
    race, logic = found(RACE), found(LOGIC)
    nothing = msgspec.structs.replace(with_subject(race, fault=None), holds=())
    witnesses = {"a": race, "b": logic, "c": race, "d": nothing}
    causes = causes_of(witnesses)
    assert [(one.edge, one.signatures) for one in causes] == [
        ("accepted-landed", ("a", "c")),
        (None, ("b",)),
        (None, ("d",)),
    ]
    assert causes[1].cause == logic.signature
    assert "shows nothing" in causes[2].cause


def test_a_store_says_which_findings_are_duplicates(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "none")
    for number, fault in enumerate((RACE, LOGIC)):
        witness = found(fault, number)
        store.offer(KeptFinding(signature=witness.signature, is_minimal=True, witness=witness))
    store.advance(state())
    words = ["campaign", "findings", "--store", str(tmp_path), "--causes"]
    shown = CliRunner().invoke(app, [*words, "--json", "-"])
    causes = msgspec.json.decode(shown.stdout)["causes"]
    assert [cause["edge"] for cause in causes] == [None, "accepted-landed"]
    assert "edge accepted-landed" in CliRunner().invoke(app, words).stdout


def report_of(*words: str) -> str:
    said = CliRunner().invoke(app, ["campaign", "report", *words])
    assert said.exit_code == 0, said.output
    return said.stdout


def test_the_report_of_a_race_names_the_edge_and_says_that_a_wait_helps() -> None:
    page = report_of(str(path_of(RACE)))
    for text in (
        "accepted-landed",
        "Yes, for no edge orders the pair",
        "d2h:accepted_counts@C.0 until host:condense@C.1",
        'requests: {"name":"A"',
        "racegate replay",
        "nobody's bug",
        "numpy",
    ):
        assert text in page


def test_where_a_wait_does_not_help_the_report_says_so() -> None:
    page = report_of(str(path_of(LOGIC)))
    assert "No: it goes wrong too when the host waits" in page
    assert "No hold is needed." in page


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    witness = found(RACE)
    evil = "\x1b[2J<script>alert(1)</script>\n# heading\n[link](http://x)"
    scenario = msgspec.structs.replace(witness.scenario, title=evil, origin=evil)
    hurt = sealed(
        msgspec.structs.replace(witness, scenario=scenario, versions={evil: evil}, title=evil)
    )
    file = tmp_path / "evil\n# name.witness.json"
    save(hurt, file)
    target = tmp_path / "report.md"
    report_of(str(file), "--markdown", str(target))
    page = target.read_text()
    told = [line for line in page.splitlines() if not line.startswith("    ")]
    assert "\x1b" not in page
    assert not any("<script>" in line or "](" in line for line in told)
    headings = [line for line in told if line.startswith("#")]
    assert headings[0] == "# Race on accepted_counts_cpu"
    assert all(line.startswith("## ") for line in headings[1:])


def test_a_finding_is_reported_by_its_signature_too(tmp_path: Path) -> None:
    witness = found(RACE)
    store = FolderStore(tmp_path / "none")
    store.offer(KeptFinding(signature=witness.signature, is_minimal=True, witness=witness))
    assert "accepted-landed" in report_of(witness.signature, "--store", str(tmp_path))
    unknown = CliRunner().invoke(app, ["campaign", "report", "other", "--store", str(tmp_path)])
    assert unknown.exit_code == 2


@pytest.mark.parametrize("words", [("signature",), ("none.witness.json",)])
def test_what_cannot_be_found_is_an_error_of_usage(words: tuple[str, ...]) -> None:
    assert CliRunner().invoke(app, ["campaign", "report", *words]).exit_code == 2


def test_a_witness_that_shows_nothing_is_not_reported(tmp_path: Path) -> None:
    bare = with_subject(found(RACE), fault=None)
    quiet = msgspec.structs.replace(bare, holds=EAGER.texts())
    file = tmp_path / "quiet.witness.json"
    save(sealed(quiet), file)
    assert not Checker(quiet.scenario).run().findings
    said = CliRunner().invoke(app, ["campaign", "report", str(file)])
    assert said.exit_code == 2
    assert "nothing to report" in " ".join(said.output.split())
