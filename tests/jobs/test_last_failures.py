"""The last failures of a job come first, and are no more than a help: whatever becomes of their
files, the job goes on.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from program_verdicts import finding, verdicts
from racegate.cli.app import app
from racegate.history.finding import Verdict
from racegate.history.replayed import ReplayOutcome, ReplaySummary
from racegate.history.witness import ENGINE_WITNESSES, Witness, load_witness
from racegate.jobs.stores import failures as module
from racegate.jobs.stores.failures import FAILURES_MAX, LastFailures, last_failures
from racegate.targets.program.judge import ProgramVerdict
from support import SCENARIOS

NAME = "accepted-copy-after-row-move"
FIRST = "racegate: last failure first: "
# One request: nobody moves into another row.
ALONE = """schema = 1
name = "finish-and-condense"
title = "a request alone"

[[requests]]
name = "A"
prompt_len = 5
max_tokens = 9
accepts = [4]
"""
WITNESSES = list(
    {
        (one.title, one.signature): one
        for one in map(load_witness, sorted((SCENARIOS / "witnesses").glob("*.json"))[:20])
    }.values()
)[: FAILURES_MAX + 2]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache directory of a user who has run nothing, in an empty folder with one script."""
    monkeypatch.delenv("RACEGATE_NO_STORE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "scripts").mkdir()
    text = (SCENARIOS / "finish_and_condense.toml").read_text()
    (tmp_path / "scripts" / "finish_and_condense.toml").write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "cache" / "racegate" / "last"


def gate(*words: str) -> tuple[int, list[str]]:
    """Its exit code, and what it says of the last failures."""
    command = ["gate", "--scenarios", "scripts", "--explore", "eager", "--fault", NAME, *words]
    done = CliRunner().invoke(app, command)
    lines = [line for line in done.stderr.splitlines() if "failure" in line]
    return done.exit_code, lines


def test_the_next_gate_begins_with_what_failed(cache: Path) -> None:
    assert gate() == (1, [])
    (kept,) = cache.rglob("*.witness.json")
    code, (said,) = gate()
    assert code == 1
    assert said.startswith(FIRST)
    assert "still there: " in said
    assert said.endswith(f"racegate replay {kept}")
    assert load_witness(kept).fault == NAME
    again = CliRunner().invoke(app, ["replay", str(kept)])
    assert again.exit_code == 1, again.output


def test_what_is_repaired_is_told_once_and_forgotten(cache: Path) -> None:
    assert gate()[0] == 1
    script = Path("scripts", "finish_and_condense.toml")
    script.write_text(ALONE)
    code, (said,) = gate()
    assert f"{ReplayOutcome.NOTHING} under the holds that showed" in said
    assert code == 0
    assert list(cache.rglob("*.witness.json")) == []
    assert gate()[1] == []


def test_other_scripts_and_other_faults_leave_it_alone(cache: Path) -> None:
    assert gate()[0] == 1
    (kept,) = cache.rglob("*.witness.json")
    other = Path("others")
    other.mkdir()
    (other / "a.toml").write_text((SCENARIOS / "stop_token.toml").read_text())
    for words in (["--scenarios", "others", "--fault", NAME], ["--scenarios", "scripts"]):
        done = CliRunner().invoke(app, ["gate", "--workers", "1", *words])
        assert FIRST not in done.stderr
    assert kept.exists()


def test_nothing_is_read_or_written_without_a_store(cache: Path) -> None:
    assert gate("--no-store") == (1, [])
    assert not cache.exists()
    gate()
    assert gate("--no-store") == (1, [])


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-100]),
        lambda path: path.write_text(path.read_text().replace('"name": "', '"name": "x', 1)),
        lambda path: path.write_bytes(b"\xff\x00"),
        lambda path: path.write_text("{}"),
        lambda path: (path.unlink(), path.mkdir()),
        lambda path: (path.unlink(), os.mkfifo(path)),
    ],
    ids=["cut", "altered", "bytes", "empty", "folder", "pipe"],
)
def test_a_file_that_is_no_use_is_told_and_removed(
    damage: Callable[[Path], object], tmp_path: Path
) -> None:
    said: list[str] = []
    kept = LastFailures(tmp_path, said.append)
    kept.keep(WITNESSES[:2], [])
    good, bad = sorted(tmp_path.iterdir())
    damage(bad)
    assert [path for path, _ in kept.read(ENGINE_WITNESSES)] == [good]
    assert len(said) == 1
    assert said[0].startswith("a failure of the last run is forgotten, because it is no use: ")
    kept.keep(WITNESSES[:1], [good])
    assert kept.read(ENGINE_WITNESSES) or bad.is_dir()


def test_a_gate_goes_on_behind_a_file_that_is_no_use(cache: Path) -> None:
    assert gate()[0] == 1
    (kept,) = cache.rglob("*.witness.json")
    kept.write_bytes(kept.read_bytes()[:-100])
    code, (said,) = gate()
    assert code == 1
    assert f"because it is no use: {kept}: cannot be read: truncated or not JSON" in said
    assert gate()[1][0].startswith(FIRST), "the next run has it again"


def test_a_place_that_cannot_be_written_is_told(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", "file")
    code, (said,) = gate()
    assert code == 1
    assert said.startswith("racegate: the next run will not begin with these failures: ")


def test_a_user_without_a_home_is_served(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(_name: str) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(module, "cache_folder", nobody)
    code, (said,) = gate()
    assert code == 1
    assert "the next run will not begin with these failures" in said


def test_an_error_in_a_replay_is_no_finding_and_no_end(tmp_path: Path) -> None:
    said: list[str] = []
    kept = LastFailures(tmp_path, said.append)
    kept.keep(WITNESSES[:2], [])

    def broken(_witness: Witness) -> ReplaySummary:
        raise KeyError("x")

    assert len(kept.replay(kept.read(ENGINE_WITNESSES), broken)) == 2
    assert all("it cannot be replayed" in one and "This is no finding" in one for one in said)


def test_only_the_first_are_kept(tmp_path: Path) -> None:
    kept = LastFailures(tmp_path, print)
    kept.keep(WITNESSES, [])
    assert len(kept.read(ENGINE_WITNESSES)) == FAILURES_MAX


def test_a_kill_at_any_moment_leaves_files_that_are_read(tmp_path: Path) -> None:
    """A process that changes the files over and over is killed in the midst of it, ten times."""
    said: list[str] = []
    kept = LastFailures(tmp_path / "x", said.append)
    for _ in range(10):
        child = os.fork()
        if not child:
            while True:
                kept.keep(WITNESSES[:3], kept.folder.glob("*.witness.json"))
                kept.keep(WITNESSES[2:5], kept.folder.glob("*.witness.json"))
        while not list((tmp_path / "x").glob("*.witness.json")):
            time.sleep(0.001)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        found = kept.read(ENGINE_WITNESSES)
        assert {one.title for _, one in found} <= {one.title for one in WITNESSES[:5]}
        kept.keep([], [path for path, _ in found])
        assert kept.read(ENGINE_WITNESSES) == []
    assert said == []


def program(monkeypatch: pytest.MonkeyPatch, found: ProgramVerdict, *words: str) -> Any:
    """`torch run` of a program that was judged so."""
    command = "racegate.cli.foreign.torch"
    monkeypatch.setattr(f"{command}.open_device", lambda *given, **options: nullcontext())
    monkeypatch.setattr(f"{command}.judge_on", lambda *given, **options: found)
    Path("x.py").write_text("")
    return CliRunner().invoke(app, ["torch", "run", *words, "x.py"])


def test_a_search_of_a_program_begins_with_what_it_found_last(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = verdicts(finding("a" * 12), verdict=Verdict.DIVERGENT)
    assert program(monkeypatch, found).exit_code == 1
    assert not cache.exists(), "without a search there is nothing to keep"
    assert FIRST not in program(monkeypatch, found, "--explore").stderr
    asked = []

    def replayed(_device: object, witness: Any, **_how: object) -> ReplaySummary:
        asked.append(witness.signature)
        return ReplaySummary(
            witness=witness.title,
            holds=witness.holds,
            outcome=ReplayOutcome.NOTHING,
            expected_signature=witness.signature,
            signature=None,
            times=1,
            outcomes={},
            digests=1,
            matches_record=False,
            recorded_with={},
        )

    monkeypatch.setattr("racegate.cli.foreign.torch.replay_program", replayed)
    clean = verdicts(verdict=Verdict.PROVED)
    done = program(monkeypatch, clean, "--explore")
    assert done.stderr.startswith(f"{FIRST}host (step): d2h on stream 1, d2h on stream 1: nothing")
    assert asked == ["a" * 12]
    assert FIRST not in program(monkeypatch, clean, "--explore").stderr


def test_folders_and_jobs_have_their_own(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = {last_failures(job, print).folder for job in (["gate", ""], ["gate", "x"], ["torch"])}
    monkeypatch.chdir("scripts")
    there = last_failures(["gate", ""], print).folder
    assert len(here | {there}) == 4
