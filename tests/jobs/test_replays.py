"""Witnesses of every kind through one replay: files that are mixed, options that are refused."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from racegate.cli import replay as command
from racegate.cli.foreign import adapter, engines, torch
from racegate.history.exit_code import ExitCode
from racegate.history.finding import Verdict
from racegate.history.replayed import ReplayOutcome, Replays, ReplaySummary
from racegate.history.witness import (
    SCHEMA,
    WitnessError,
    load_witness,
    read_object,
    save,
    save_first,
    subject_of,
)
from racegate.jobs.stores.witnesses import any_witness
from racegate.jobs.triage import replays
from racegate.jobs.triage.replays import REPLAY_KINDS, ReplaySettings, replay_files
from racegate.scenario.errors import BadInputError
from racegate.scenario.spec import Request, Scenario
from racegate.targets.common.judge import judge
from racegate.targets.common.witnesses.witness import witnesses_of, write_witnesses
from racegate.targets.sglang.cell import SchedulerCell
from racegate.targets.sglang.wire import ModelKind, Repair
from racegate.targets.sglang.witness import SGLANG_WITNESSES, SchedulerWitness
from racegate.targets.vllm.cell import Cell
from racegate.targets.vllm.wire import ModelRunner, StateMode
from small_engine import Wait
from small_release import SmallReleases
from support import SCENARIOS

ENGINE = SCENARIOS / "witnesses" / "accepted-copy-after-row-move.witness.json"
OTHER_ENGINE = SCENARIOS / "witnesses" / "zero-list-live.witness.json"
VLLM = SCENARIOS / "vllm" / "witnesses" / "0.22.1-v1-none-first_decode_in_moved_row-1.json"
CELL = SchedulerCell(release="1.0", model=ModelKind.HYBRID, without=(Repair.WAR_BARRIER,))
SCENARIO = Scenario(
    name="small",
    title="one step",
    requests=(Request(name="A", arrive=0, prompt=(1,), max_tokens=1),),
)
COMMITTED = [
    path
    for path in sorted(SCENARIOS.rglob("*.json"))
    if path.parent.name == "witnesses" and "schema" in path.read_text(encoding="utf-8")
]


@pytest.fixture
def sglang(tmp_path: Path) -> Path:
    """A witness of SGLang."""
    judged = judge(SmallReleases(Wait.BEHIND), SCENARIO, CELL)
    (path,) = write_witnesses(tmp_path, witnesses_of(SchedulerWitness, judged, SCENARIO))
    return path


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.name)
def test_every_committed_witness_is_read(path: Path) -> None:
    assert subject_of(read_object(path), source=str(path)) in REPLAY_KINDS
    witness = any_witness(path)
    assert witness.schema == SCHEMA and witness.title and witness.verdict


def test_a_witness_of_the_first_schema_is_the_same_when_it_is_written_again(
    tmp_path: Path,
) -> None:
    witness = load_witness(ENGINE)
    save(witness, tmp_path / "new.witness.json")
    save_first(witness, tmp_path / "old.witness.json")
    for name, schema in (("new", SCHEMA), ("old", "racegate.witness/1")):
        path = tmp_path / f"{name}.witness.json"
        assert json.loads(path.read_text())["schema"] == schema
        assert load_witness(path) == witness


def test_the_subject_is_asked_of_the_tag() -> None:
    assert subject_of({"schema": SCHEMA, "subject": {"of": "sglang"}}, source="x") == "sglang"
    assert subject_of({"schema": "racegate.program/1"}, source="x") == "program"
    for raw in ({}, [], {"schema": "racegate.witness/9"}):
        with pytest.raises(WitnessError, match=r"^x: "):
            subject_of(raw, source="x")


def test_mixed_files_come_back_in_their_order(
    monkeypatch: pytest.MonkeyPatch, sglang: Path
) -> None:
    opened = SmallReleases(Wait.BEHIND)
    monkeypatch.setattr(replays, "open_release", opened)
    done: list[Path] = []
    files = [sglang, ENGINE, sglang, OTHER_ENGINE]
    found = replay_files(files, ReplaySettings(times=2), on_done=done.append)
    assert [one.subject for one in found] == ["sglang", "engine", "sglang", "engine"]
    assert [one.file for one in found] == [file.name for file in files]
    assert all(one.outcome is ReplayOutcome.REPRODUCED for one in found)
    assert all((one.times, one.digests, one.matches_record) == (2, 1, True) for one in found)
    assert opened.cells == [CELL], "one engine for all that share it"
    assert sorted(done) == sorted(files)


def test_several_have_one_form_and_the_worst_outcome_is_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, sglang: Path, tmp_path: Path
) -> None:
    monkeypatch.setattr(replays, "open_release", SmallReleases(Wait.DEAD))
    out = tmp_path / "out.json"
    result = CliRunner().invoke(command.app, [str(sglang), str(ENGINE), "--json", str(out)])
    assert result.exit_code == ExitCode.NOTHING_FOUND
    found = msgspec.json.decode(out.read_bytes(), type=Replays)
    outcomes = [one.outcome for one in found.replays]
    assert outcomes == [ReplayOutcome.NOTHING, ReplayOutcome.REPRODUCED]
    assert found.replays[0].signature is None
    assert {"fault", "resolved", "message", "recorded_with"} <= set(ReplaySummary.__struct_fields__)


@pytest.mark.parametrize(
    ("file", "settings", "option"),
    [
        (ENGINE, ReplaySettings(timeout_s=3.0), "--timeout"),
        (ENGINE, ReplaySettings(release="0.24.0"), "--release"),
        (ENGINE, ReplaySettings(log=Path("x")), "--log"),
        (VLLM, ReplaySettings(pacing=command.Pacing.NATURAL), "--pacing"),
    ],
)
def test_an_option_that_is_not_for_a_subject_is_refused_by_name(
    file: Path, settings: ReplaySettings, option: str
) -> None:
    with pytest.raises(BadInputError, match=f"{option} is not for these") as caught:
        replay_files([file], settings)
    assert file.name in str(caught.value)


def test_a_gpu_is_refused_for_sglang(sglang: Path) -> None:
    settings = ReplaySettings(device=command.ProgramDevice.CUDA)
    with pytest.raises(BadInputError, match="an SGLang release: --device is not for these"):
        replay_files([sglang], settings)


def test_options_of_releases_are_honoured(monkeypatch: pytest.MonkeyPatch, sglang: Path) -> None:
    opened = SmallReleases(Wait.BEHIND)
    monkeypatch.setattr(replays, "open_release", opened)
    replay_files([sglang], ReplaySettings(release="2.0", checkout=Path("/src"), timeout_s=7.0))
    assert (opened.cells[0].release, opened.cells[0].checkout) == ("2.0", "/src")
    replay_files([sglang], ReplaySettings(release="2.0"))
    assert (opened.cells[1].release, opened.cells[1].checkout) == ("2.0", None)
    (found,) = replay_files([VLLM], ReplaySettings(times=3))
    assert opened.cells[2] == Cell(release="0.22.1", runner=ModelRunner.V1, mode=StateMode.NONE)
    assert opened.limits == [7.0, replays.RUN_S, replays.RUN_S]
    assert (found.times, sum(found.outcomes.values())) == (3, 3)


def test_a_witness_of_sglang_is_read_as_it_was_written(sglang: Path) -> None:
    witness = SGLANG_WITNESSES.load(sglang)
    assert witness.subject == CELL
    assert sglang.name == "1.0-hybrid-without-war-barrier-small-1.json"
    assert (witness.verdict, witness.wrong[0].used) == (Verdict.DIVERGENT, 4)
    with pytest.raises(WitnessError, match="a witness of 'sglang', not of racegate's own engine"):
        load_witness(sglang)
    with pytest.raises(WitnessError, match="a witness of 'vllm', not of an SGLang release"):
        SGLANG_WITNESSES.load(VLLM)


def test_the_names_of_other_groups_are_this_command() -> None:
    for group in (torch.app, engines.vllm, engines.sglang, adapter.app):
        names = {one.name or one.callback.__name__ for one in group.registered_commands}
        assert "replay" in names
