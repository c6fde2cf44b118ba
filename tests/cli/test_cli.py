"""The command line: exit codes, the JSON contract, progress and errors, as a user and a script see
them.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from racegate.faults.catalogue import find_fault
from racegate.history.witness import load_witness, save
from stored import with_subject
from support import IS_NIGHTLY, JUDGED, NAMES, PAIR_NAMES, SCENARIOS
from warmed import run_command

ROOT = Path(__file__).parents[2]
FINISH = "scenarios/finish_and_condense.toml"
LATE_COPY = "d2h:accepted_counts@3 until host:condense@4"

RUN_FIELDS = {
    "breakages",
    "resolved",
    "schema",
    "scenario",
    "device",
    "config",
    "fault",
    "schedule",
    "verdict",
    "findings",
    "stats",
    "holds",
    "unmet",
    "warnings",
    "search",
    "target",
    "tried",
    "not_seen",
    "message",
    "refused",
    "is_lost",
    "comparison",
}
FINDING_FIELDS = {
    "kind",
    "signature",
    "message",
    "buffer",
    "op",
    "other",
    "edge",
    "step",
    "request",
    "layer",
    "field",
    "expected",
    "actual",
    "replay",
    "hazard",
    "verdict",
    "holds",
    "race",
    "rank",
}
STATS_FIELDS = {
    "steps",
    "ops",
    "overlapped_ops",
    "row_moves",
    "rejections",
    "preemptions",
    "host_waits",
    "schedules",
    "seconds",
}


def racegate(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return run_command(*arguments, cwd=cwd)


def json_of(*arguments: str, code: int = 0) -> Any:
    result = racegate(*arguments, "--json", "-")
    assert result.returncode == code, result.stderr
    return json.loads(result.stdout)


# `make gate` runs all of them.
WORDS = () if IS_NIGHTLY else ("condense", "accepted", "preempt")
Whole = tuple[subprocess.CompletedProcess[str], Any]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """The gate with its witnesses, run once: what it prints, and its JSON."""
    path = tmp_path_factory.mktemp("gate") / "gate.json"
    chosen = ("--must-fail", "scenarios/witnesses", *(("-k", " or ".join(WORDS)) if WORDS else ()))
    result = racegate("gate", *chosen, "--json", str(path))
    return result, json.loads(path.read_text())


def is_chosen(name: str) -> bool:
    return not WORDS or any(word in name for word in WORDS)


CHOSEN = {name for name in (*NAMES, *PAIR_NAMES) if is_chosen(name)}


class TestGate:
    def test_fault_free_it_proves_what_it_is_given(self, whole: Whole) -> None:
        result, _ = whole
        assert result.returncode == 0, result.stdout + result.stderr
        assert "seconds" not in result.stdout, "the table is for -v"
        assert "PROVED: " in result.stdout
        assert "assuming:" in result.stdout

    def test_its_json_has_every_scenario_given(self, whole: Whole) -> None:
        _, gate = whole
        assert set(gate) == {
            "schema",
            "verdict",
            "scenarios",
            "must_fail",
            "selfcheck",
            "unmet",
            "stats",
            "breakages",
            "benign",
            "baseline",
            "pairs",
        }
        assert (gate["breakages"], gate["benign"]) == ([], "pass")
        assert {of["numerics"] for of in gate["pairs"]} == set(JUDGED)
        assert all(of["covered"] <= of["possible"] for of in gate["pairs"])
        assert sum(of["covered"] for of in gate["pairs"]) > 0
        check = gate["selfcheck"]
        assert check["canaries"] == check["canaries_found"] > 0
        assert check["double_runs"] >= len(CHOSEN) / 20
        assert (check["mismatches"], check["problems"]) == (0, [])
        assert gate["verdict"] == "PROVED"
        assert {run["scenario"] for run in gate["scenarios"]} == CHOSEN
        for run in gate["scenarios"]:
            assert set(run) >= RUN_FIELDS - {"schema"}
            assert run["verdict"] == "PROVED"
            assert run["stats"]["overlapped_ops"] > 0

    @pytest.mark.parametrize(
        "fault",
        [
            "accepted-read-before-copy",
            "accepted-copy-after-row-move",
            "accepted-double-remap",
            "accepted-not-reset-first-spec",
            "backup-token-inflated-index",
            "correction-partial-fields",
            "correction-wrong-epoch",
            "pinned-input-overwrite",
        ],
    )
    def test_each_fault_is_found(self, fault: str) -> None:
        scripts = " or ".join(find_fault(fault).scenarios)
        gate = json_of("gate", "--fault", fault, "-k", scripts, code=1)
        assert gate["verdict"] in ("DIVERGENT", "CONFLICT")

    def test_the_control_is_silent(self) -> None:
        gate = json_of("gate", "--fault", "accepted-count-first-hole", "-k", "align or condense")
        assert len(gate["scenarios"]) > 3
        assert gate["stats"]["findings"] == 0

    def test_json_is_one_object_and_nothing_else(self) -> None:
        gate = json_of("gate", "-k", "stop-token")
        assert [run["scenario"] for run in gate["scenarios"]] == ["stop-token"]

    def test_what_must_fail_does(self, whole: Whole) -> None:
        _, gate = whole
        names = {path.name for path in (SCENARIOS / "witnesses").glob("*.json")}
        looked_at = {Path(entry["witness"]).name for entry in gate["must_fail"]}
        assert looked_at == set(filter(is_chosen, names))
        assert {entry["outcome"] for entry in gate["must_fail"]} == {"reproduced"}

    def test_what_must_fail_and_does_not_is_exit_code_1(self, tmp_path: Path) -> None:
        shutil.copy(SCENARIOS / "add_into_hole.toml", tmp_path)
        mended = load_witness(SCENARIOS / "witnesses" / "correction-wrong-epoch.witness.json")
        mended = with_subject(mended, fault=None)
        save(mended, tmp_path / "mended.witness.json")
        arguments = ("--scenarios", str(tmp_path), "--must-fail", str(tmp_path))
        gate = json_of("gate", *arguments, code=1)
        assert gate["verdict"] == "INCONCLUSIVE"
        (entry,) = gate["must_fail"]
        assert (entry["outcome"], entry["signature"]) == ("nothing found", None)
        result = racegate("gate", *arguments)
        assert "must fail and did not" in result.stdout
        assert "0 of 1 witness " in result.stdout

    def test_a_folder_of_nothing_that_must_fail_is_bad_input(self, tmp_path: Path) -> None:
        result = racegate("gate", "--must-fail", str(tmp_path))
        assert result.returncode == 2
        assert "nothing that must fail" in result.stderr

    def test_a_bad_scenario_stops_the_gate_before_it_runs(self, tmp_path: Path) -> None:
        shutil.copy(SCENARIOS / "add_into_hole.toml", tmp_path)
        (tmp_path / "bad.toml").write_text("schema = 1\nname = 3\n")
        result = racegate("gate", "--scenarios", str(tmp_path))
        assert result.returncode == 2
        assert "bad.toml" in result.stderr
        assert "$.name" in result.stderr
        assert result.stdout == ""

    def test_an_empty_folder_is_not_a_pass(self, tmp_path: Path) -> None:
        result = racegate("gate", "--scenarios", str(tmp_path))
        assert result.returncode == 2
        assert "--scenarios" in result.stderr

    def test_a_scenario_that_exercises_too_little_is_inconclusive(self, tmp_path: Path) -> None:
        text = (SCENARIOS / "add_into_hole.toml").read_text()
        path = tmp_path / "s.toml"
        path.write_text(text.replace("rejections = 3", "rejections = 3\npreemptions = 1"))
        result = racegate("gate", "--scenarios", str(tmp_path))
        assert result.returncode == 4
        assert "preemptions: 0, the scenario expects at least 1" in result.stdout


class TestRun:
    def test_a_finding_can_be_acted_on_and_replayed(self) -> None:
        fault = "accepted-copy-after-row-move"
        run = json_of("run", FINISH, "--fault", fault, "--hold", LATE_COPY, code=1)
        assert set(run) == RUN_FIELDS
        assert run["verdict"] == "DIVERGENT"
        assert run["schedule"] == [LATE_COPY]
        assert set(run["stats"]) >= STATS_FIELDS
        for finding in run["findings"]:
            assert set(finding) == FINDING_FIELDS
        conflict, *_ = run["findings"]
        assert conflict["kind"] == "conflict"
        assert conflict["buffer"] == "accepted_counts_cpu"
        assert conflict["op"] == "d2h:accepted_counts@3"
        assert conflict["other"] == "host:condense@4"
        assert conflict["edge"] == "accepted-landed"
        (divergence,) = [f for f in run["findings"] if f["kind"] == "divergence"]
        assert divergence["field"] == "inputs.accepted"
        assert (divergence["request"], divergence["step"]) == ("C", 4)
        assert (divergence["expected"], divergence["actual"]) == (1, 4)
        command = divergence["replay"].removeprefix("racegate ")
        assert json_of(*shlex.split(command), code=1)["findings"] == run["findings"]

    def test_the_terminal_says_the_same(self) -> None:
        result = racegate("run", FINISH, "--fault", "accepted-double-remap")
        assert result.returncode == 1
        assert "accepted_counts_cpu" in result.stdout
        assert "replay: racegate run" in result.stdout

    def test_a_clean_run(self) -> None:
        run = json_of("run", FINISH)
        assert run["verdict"] == "PROVED"
        assert run["config"]["engine"]["depth"] == 2

    def test_an_unrealised_hold_is_no_pass(self) -> None:
        run = json_of("run", FINISH, "--hold", "d2h:nothing@1 until host:condense@2", code=4)
        assert run["verdict"] == "INCONCLUSIVE"
        assert run["holds"][0]["realised"] == 0

    def test_json_to_a_file_leaves_the_report_on_the_terminal(self, tmp_path: Path) -> None:
        path = tmp_path / "run.json"
        result = racegate("run", FINISH, "--json", str(path))
        assert result.returncode == 0
        assert "PROVED" in result.stdout
        assert json.loads(path.read_text())["verdict"] == "PROVED"

    def test_a_real_log(self) -> None:
        log = "scenarios/traces/azure_conv_2023_200.csv"
        run = json_of("run", "--trace", log, "--rows", "20:30", "--scale", "64")
        assert run["verdict"] == "PROVED"
        assert run["stats"]["steps"] > 5


class TestErrors:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("run",), "either a scenario, by its file or its name, or --trace"),
            (("run", "none.toml"), "cannot be read"),
            (("run", FINISH, "--fault", "none"), "no fault 'none'"),
            (("run", FINISH, "--hold", "one until two until three"), "OP until POINT"),
            (("run", "--trace", "none.csv"), "cannot be read"),
            (("run", FINISH, "--device", "abacus"), "abacus"),
            (("run", FINISH, "--json", "/no/such/folder/x.json"), "cannot write"),
            (("gate", "--fault", "none"), "no fault 'none'"),
        ],
    )
    def test_bad_input_is_exit_code_2_and_a_reason(
        self, arguments: tuple[str, ...], message: str
    ) -> None:
        result = racegate(*arguments)
        assert result.returncode == 2
        assert message in result.stderr
        assert "Traceback" not in result.stderr


class TestLists:
    def test_faults(self) -> None:
        faults = json_of("faults", "list")
        assert len(faults) >= 9
        for fault in faults:
            assert set(fault) >= {"name", "kind", "origin", "expect", "scenarios"}
        assert "accepted-double-remap" in racegate("faults", "list").stdout

    def test_scenarios(self) -> None:
        listed = json_of("scenarios", "list")
        assert {entry["name"] for entry in listed} == {*NAMES, *PAIR_NAMES}
        assert all(entry["title"] and entry["origin"] for entry in listed)


def test_bench_reports_figures_with_their_environment() -> None:
    bench = json_of("bench", "--seconds", "0.1")
    assert set(bench) == {"schema", "environment", "results"}
    names = {entry["name"] for entry in bench["results"]}
    assert {"schedules_per_second", "engine_ms", "recording_ms", "oracles_ms"} <= names
    for entry in bench["results"]:
        assert set(entry) == {"name", "value", "unit", "detail"}
    assert {"python", "numpy", "cores"} <= set(bench["environment"])
