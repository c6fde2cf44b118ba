"""Repairs of the seeded faults of racegate's own engine."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from racegate.check.checker import Checker
from racegate.cli.app import app
from racegate.faults.catalogue import FAULTS, find_fault
from racegate.faults.fault import FaultKind
from racegate.history.exit_code import ExitCode
from racegate.jobs.triage.repaired import NO_RACE, repair_engine
from racegate.scenario.files import load, script_file
from racegate.targets.program.repairs.proof import ProgramRepair
from repository import ROOT


def repaired(name: str) -> ProgramRepair:
    fault = find_fault(name)
    return repair_engine(Checker(load(script_file(Path(fault.scenarios[0])))), fault)


@pytest.mark.parametrize(
    ("name", "words", "waiter"),
    [
        ("plan-before-producer", "the engine's edge plan-after-counts is kept", "stream"),
        ("pinned-guard-too-narrow", "the engine's edge input-prep-guard is kept", "host"),
        ("accepted-copy-after-row-move", "before host:condense", "host"),
        ("output-copy-lifetime", "waited for by its stream before free:sampled_gpu", "stream"),
    ],
)
def test_a_fault_is_repaired_and_the_edge_is_needed(name: str, words: str, waiter: str) -> None:
    found = repaired(name)
    (edge,) = found.edges
    assert words in edge.words
    assert (edge.waiter, edge.operations > 0, found.after) == (waiter, True, "PROVED")
    assert set(edge.without) == set(edge.repairs) == set(found.conflicts)
    assert found.exit_code is ExitCode.CLEAN


def test_two_edges_where_one_is_not_enough() -> None:
    found = repaired("zero-list-restage")
    assert (len(found.edges), found.after) == (2, "PROVED")
    assert all(edge.without for edge in found.edges)


def test_what_is_wrong_without_a_conflict_is_not_called_repaired() -> None:
    found = repaired("accepted-double-remap")
    assert [one.signature for one in found.left] == [
        "ownership/accepted_counts_cpu/host:prepare_inputs"
    ]
    assert found.exit_code is ExitCode.FINDING
    logic = next(one for one in FAULTS if one.kind is FaultKind.LOGIC)
    assert repaired(logic.name).reason == NO_RACE


def test_a_scenario_that_exercises_less_with_the_edges_is_open() -> None:
    found = repaired("slot-map-live")
    assert found.exit_code is ExitCode.INCONCLUSIVE
    assert "overlapped_ops" in found.left[-1].reason


def test_the_committed_table_is_of_ordering_faults_and_has_no_edge_too_many() -> None:
    text = (ROOT / "reports" / "faults" / "repairs.json").read_text()
    rows = msgspec.json.decode(text, type=list[ProgramRepair])
    ordering = {one.name for one in FAULTS if one.kind is FaultKind.ORDERING}
    assert {one.argv[-1] for one in rows} <= ordering
    assert len(rows) >= 25
    assert all(edge.without for one in rows for edge in one.edges)


def test_the_command_says_it() -> None:
    words = ["repair", "--fault", "plan-before-producer", "plan-on-side-stream", "--json", "-"]
    done = CliRunner().invoke(app, words[:3] + words[4:] + words[3:4])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["after"] == "PROVED"
    wrong = CliRunner().invoke(app, ["repair", "--fault", "plan-before-producer", "a", "b"])
    assert (wrong.exit_code, "name one scenario" in wrong.stderr) == (2, True)
