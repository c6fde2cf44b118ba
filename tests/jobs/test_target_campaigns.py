"""Campaigns on targets that are not ours: what is drawn for them; that they are stopped, gone on
with and shared as every campaign is.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from cuda_torch import needs_cuda_torch
from fleets import fleet_file, toys
from racegate.cli.app import app
from racegate.cli.foreign import releases
from racegate.history.replayed import ReplayOutcome
from racegate.jobs.foreign import opened
from racegate.jobs.foreign.features import drawn_features, featured
from racegate.jobs.foreign.requests import drawn_requests, free_in, scenario_of
from racegate.jobs.stores.folder import FolderStore
from racegate.jobs.stores.witnesses import any_witness
from racegate.jobs.triage import replays
from racegate.jobs.triage.replays import ReplaySettings, replay_files
from racegate.scenario.spec import Request, Scenario
from racegate.scenario.validation import validate
from racegate.scenario.writing import toml_of
from racegate.targets.adapters.witness import AdapterSubject
from racegate.targets.common.witnesses.witness import ReleaseWitness
from racegate.targets.program.workflow.witness import ProgramWitness
from racegate.targets.vllm.cell import Cell, cannot_run
from racegate.targets.vllm.wire import ModelRunner, StateMode
from small_engine import Wait
from small_release import SmallReleases

COUNT = "d2h counts.cpu@_step"


@given(st.integers(0, 100_000))
def test_a_drawn_scenario_can_be_run(seed: int) -> None:
    scenario = scenario_of(seed)
    assert cannot_run(scenario) == ""
    assert scenario == scenario_of(seed)
    assert len({request.name for request in scenario.requests}) == len(scenario.requests)
    assert validate(scenario) == scenario


@given(st.integers(0, 100_000))
def test_a_scenario_with_features_can_be_run(seed: int) -> None:
    scenario = featured(seed)
    assert cannot_run(scenario) == ""
    assert scenario == featured(seed)
    assert validate(scenario) == scenario
    assert scenario.requests != scenario_of(seed).requests


def test_every_feature_is_drawn() -> None:
    drawn = [drawn_features(1, index) for index in range(60)]
    assert (drawn[9].name, drawn[9].title) == ("features-1-9", "drawn from seed 1000009")
    requests = [one for scenario in drawn for one in scenario.requests]
    assert {one.grammar_modulus for one in requests} == {0, 2}
    assert {one.temperature for one in requests} == {0.0, 0.05, 0.08}
    assert any(len(one.prompt) > 256 for one in requests)
    beginnings = [
        [one.prompt[:3] for one in scenario.requests if len(one.prompt) > 3] for scenario in drawn
    ]
    assert any(len(set(each)) < len(each) for each in beginnings)


def test_seeds_differ() -> None:
    assert len({msgspec.json.encode(scenario_of(seed).requests) for seed in range(50)}) == 50
    scenario = drawn_requests(0, 9)
    assert (scenario.name, scenario.title) == ("requests-0-9", "drawn from seed 9")
    assert drawn_requests(1, 9).requests != scenario.requests


def test_others_come_in_where_the_first_row_becomes_free() -> None:
    scenarios = [scenario_of(seed) for seed in range(50)]
    meeting = [s for s in scenarios if _arrivals(s) <= {free_in(s.requests[0]) - n for n in (1, 2)}]
    assert 25 <= len(meeting) < 50
    assert any(len(_arrivals(scenario)) == 2 for scenario in meeting)


def _arrivals(scenario: Scenario) -> set[int]:
    return {request.arrive for request in scenario.requests[1:]}


def test_a_row_is_free_later_if_more_than_one_token_was_missing() -> None:
    request = Request(name="A", arrive=2, prompt=(5, 6), max_tokens=9, accepts=(4,))
    assert free_in(request) == 7, "tokens in steps 3, 4 and 5; step 6 was planned by then"
    assert free_in(msgspec.structs.replace(request, max_tokens=6)) == 6
    assert free_in(msgspec.structs.replace(request, max_tokens=1)) == 4


def searched(kind: str, out: Path, *options: str) -> tuple[int, dict[str, Any]]:
    """A campaign's exit code and what it says."""
    words = [kind, "search", "--release", "1.0", "--out", str(out), "--json", "-", *options]
    result = CliRunner().invoke(app, words)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    return result.exit_code, json.loads(result.stdout)


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> SmallReleases:
    """A release that waits too late, but for the first scenario."""
    small = SmallReleases(Wait.BEHIND, calm=("-0",))
    monkeypatch.setattr(opened, "open_release", small)
    monkeypatch.setattr(replays, "open_release", small)
    return small


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_a_kind_of_harm_is_witnessed_once_in_the_smallest_scenario(
    kind: str, broken: SmallReleases, tmp_path: Path
) -> None:
    code, said = searched(kind, tmp_path, "--scenarios", "4")
    assert code == 1
    assert said["campaign"]["verdicts"] == {"DIVERGENT": 3, "PROVED": 1}
    (new,) = said["new"]
    assert (new["scenario"], new["signature"][:17]) == (1, "wrong/counts.cpu/")
    (file,) = tmp_path.glob("*.witness.json")
    witness = any_witness(file)
    assert isinstance(witness, ReleaseWitness)
    assert witness.subject == broken.cells[0]
    assert witness.landing[0].op.startswith(COUNT)
    assert len(witness.scenario.requests) == new["requests"] == 1
    (again,) = replay_files([file], ReplaySettings())
    assert (again.outcome, again.subject) == (ReplayOutcome.REPRODUCED, kind)


def test_a_campaign_on_a_release_goes_on_where_it_or_its_store_stopped(
    broken: SmallReleases, tmp_path: Path
) -> None:
    store = ("--store", str(tmp_path / "store"))
    code, first = searched("vllm", tmp_path / "one", "--scenarios", "1", *store)
    assert (code, first["new"], first["campaign"]["done"]) == (0, [], 1)
    code, on = searched("vllm", tmp_path / "one", "--scenarios", "3", *store)
    assert (code, len(on["new"]), on["campaign"]["done"]) == (1, 1, 3)
    code, elsewhere = searched("vllm", tmp_path / "two", "--scenarios", "4", *store)
    assert (elsewhere["campaign"]["done"], elsewhere["new"]) == (4, [])
    assert elsewhere["known"] == [on["new"][0]["signature"]]
    words = ["campaign", "findings", "--store", str(tmp_path / "store"), "--json", "-"]
    listed = json.loads(CliRunner().invoke(app, words).stdout)["targets"]
    assert [one["name"] for one in listed["targets"]] == ["vLLM-1.0-v1-none"]
    assert listed["rows"][0]["cells"][0]["replay"].startswith("racegate replay wrong-counts.cpu")
    refused = CliRunner().invoke(
        app,
        ["vllm", "search", "--release", "2.0", "--out", str(tmp_path / "one"), "--scenarios", "9"],
    )
    assert (refused.exit_code, "of a campaign with seed 0" in refused.output) == (2, True)


def test_what_is_wrong_when_nothing_is_held_and_what_nobody_tried_are_findings_too(
    broken: SmallReleases, tmp_path: Path
) -> None:
    """With no run under holds a race stays a CONFLICT, and its witness shows it again."""
    code, said = searched("vllm", tmp_path, "--scenarios", "2", "--runs", "0")
    assert (code, said["campaign"]["verdicts"]) == (1, {"CONFLICT": 1, "PROVED": 1})
    (file,) = tmp_path.glob("*.witness.json")
    (again,) = replay_files([file], ReplaySettings())
    assert (again.holds, again.outcome) == ((), ReplayOutcome.REPRODUCED)
    broken.wait = Wait.BEFORE
    (mended,) = replay_files([file], ReplaySettings())
    assert mended.outcome is ReplayOutcome.NOTHING


def test_a_campaign_on_an_adapter_finds_what_its_kit_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, wrong = toys(tmp_path)
    monkeypatch.chdir(wrong)
    out = tmp_path / "out"
    words = ["adapter", "search", "--draw", "requests", "--seed", "8", "--scenarios", "1"]
    words += ["--out", str(out), "--", sys.executable, "toy_adapter.py", "plain", "holds"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 1, result.output
    (kept,) = FolderStore(out).findings()
    assert (kept.signature, kept.seed, kept.index) == ("loss/delivered", 8, 0)
    subject = any_witness(out / "loss-delivered.witness.json").subject  # type: ignore[attr-defined]
    assert isinstance(subject, AdapterSubject) and subject.folder == os.getcwd()
    monkeypatch.chdir(tmp_path)
    (again,) = replay_files([out / "loss-delivered.witness.json"], ReplaySettings())
    assert again.outcome is ReplayOutcome.REPRODUCED


def test_a_cell_is_what_the_options_say(broken: SmallReleases, tmp_path: Path) -> None:
    searched("vllm", tmp_path, "--scenarios", "1", "--runner", "v2", "--cache-mode", "all")
    assert broken.cells == [Cell(release="1.0", runner=ModelRunner.V2, mode=StateMode.ALL)]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full disk at /dev/full")
@pytest.mark.parametrize("command", ["run", "gate"])
def test_what_a_release_shows_is_seen_though_its_json_cannot_be_written(
    command: str, broken: SmallReleases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(releases, "open_release", broken)
    script = tmp_path / "small.toml"
    script.write_text(toml_of(drawn_requests(0, 1)), encoding="utf-8")
    given = [str(script)] if command == "run" else ["--scenarios", str(tmp_path)]
    words = ["vllm", command, *given, "--release", "1.0", "--json", "/dev/full"]
    done = CliRunner().invoke(app, words)
    assert "step 1: count: 4 used, 1 true" in done.stdout
    assert (done.exit_code, "cannot write /dev/full" in done.stderr) == (3, True)


# Every third number waits too late.
PROGRAM = """
import sys
import torch
import racegate

number = int(sys.argv[1])
staging = torch.zeros(4, dtype=torch.int32, pin_memory=True)
side = torch.cuda.Stream()
value = torch.full((4,), 7 + number, dtype=torch.int32, device="cuda")
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    staging.copy_(value, non_blocking=True)
if number % 3:
    side.synchronize()
racegate.observe("total", int(staging.sum()))
"""


@needs_cuda_torch
@pytest.mark.timeout(900)
def test_a_program_is_given_a_number_for_each_scenario_alone_and_in_a_fleet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("program.py").write_text(PROGRAM)
    words = ["torch", "search", "--out", "out", "--scenarios", "2", "--workers", "2", "--json", "-"]
    none = CliRunner().invoke(app, [*words, "program.py"])
    assert (none.exit_code, "where the drawn number goes" in none.output) == (2, True)
    done = CliRunner().invoke(app, [*words, "program.py", "{seed}"])
    said = json.loads(done.stdout)
    assert said["campaign"]["verdicts"] == {"DIVERGENT": 1, "PROVED": 1}, said["breakages"]
    ((signature, scenario),) = [(one["signature"], one["scenario"]) for one in said["new"]]
    assert scenario == 0
    witness = any_witness(Path("out", f"{signature}.witness.json"))
    assert isinstance(witness, ProgramWitness) and witness.argv == ("program.py", "0")
    (again,) = replay_files([Path("out", f"{signature}.witness.json")], ReplaySettings())
    assert again.outcome is ReplayOutcome.REPRODUCED
    file = fleet_file(tmp_path, 'name = "p"\nprogram = ["program.py", "{seed}"]')
    words = ["fleet", str(file), "--out", "fleet", "--scenarios", "1", "--json", "-"]
    done = CliRunner().invoke(app, words)
    (row,) = json.loads(done.stdout)["matrix"]["rows"]
    assert (done.exit_code, row["cells"][0]["target"], row["cells"][0]["hits"]) == (1, "p", 1)
