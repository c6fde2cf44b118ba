"""Witnesses of engines behind an adapter, and their replay."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from test_judge import EVERYTHING, HOLD, RACY, SCENARIO, Lines
from typer.testing import CliRunner

from racegate.cli import replay as command
from racegate.cli.foreign import adapter as commands
from racegate.history.exit_code import ExitCode
from racegate.history.finding import FindingKind
from racegate.history.replayed import ReplayOutcome
from racegate.history.witness import WitnessError, save
from racegate.jobs.triage.replays import ReplaySettings, replay_files
from racegate.scenario.writing import toml_of
from racegate.targets.adapters.witness import ADAPTER_WITNESSES, AdapterSubject
from scripted_engine import observation, scripted

EAGER: Lines = [*RACY, observation(2, count=1)]
HELD: Lines = [*RACY, observation(2, count=4)]


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """The command of an engine in which one landing does harm."""
    return scripted(tmp_path, {"": EAGER, HOLD: HELD}, **EVERYTHING)


@pytest.fixture
def written(tmp_path: Path, words: list[str]) -> Path:
    """What `adapter run --witness` writes of it."""
    script = tmp_path / "one.toml"
    script.write_text(toml_of(SCENARIO))
    options = ["--witness", str(tmp_path / "found"), "--", *words]
    result = CliRunner().invoke(commands.app, ["run", str(script), *options])
    assert result.exit_code == ExitCode.FINDING, result.output
    (path,) = (tmp_path / "found").iterdir()
    return path


def test_a_landing_that_does_harm_is_written(written: Path, words: list[str]) -> None:
    witness = ADAPTER_WITNESSES.load(written)
    assert witness.subject == AdapterSubject(command=tuple(words), device="cpu")
    assert (witness.holds, witness.signature) == ((HOLD,), "divergence/sampled.count")
    assert witness.finding is not None and witness.finding.kind is FindingKind.DIVERGENCE
    assert (witness.scenario.name, witness.versions["scripted"]) == ("one", "1")


def test_it_is_replayed_by_the_one_command(written: Path) -> None:
    (found,) = replay_files([written], ReplaySettings(times=2))
    assert (found.subject, found.outcomes) == ("adapter", {"reproduced": 2})
    result = CliRunner().invoke(command.app, [str(written)])
    assert result.exit_code == ExitCode.FINDING
    assert "reproduced 1 of 1: one request" in result.output


@pytest.mark.parametrize(
    ("held", "outcome"),
    [
        (EAGER, ReplayOutcome.OTHER),
        ([*RACY, observation(2, other=1)], ReplayOutcome.OTHER),
    ],
)
def test_another_engine_shows_another_finding(
    tmp_path: Path, written: Path, held: Lines, outcome: ReplayOutcome
) -> None:
    scripted(tmp_path, {"": EAGER, HOLD: held}, **EVERYTHING)
    assert replay_files([written], ReplaySettings())[0].outcome is outcome


def test_a_hold_that_keeps_nothing_back_is_not_realised(tmp_path: Path, written: Path) -> None:
    lost = {HOLD: {"holds": [{"hold": HOLD, "matched": 1, "realised": 0}]}}
    scripted(tmp_path, {"": EAGER, HOLD: EAGER}, answers=lost, **EVERYTHING)
    (found,) = replay_files([written], ReplaySettings())
    assert found.outcome is ReplayOutcome.NOT_REALISED


def test_a_witness_that_is_not_understood_is_refused(written: Path) -> None:
    witness = ADAPTER_WITNESSES.load(written)
    save(msgspec.structs.replace(witness, holds=("two words until forced",)), written)
    with pytest.raises(WitnessError, match="cannot read the hold"):
        ADAPTER_WITNESSES.load(written)
