"""`racegate replay --pdb`: it stops where a held operation lands, in the engine or the program."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from typer.testing import CliRunner

from cuda_torch import needs_cuda_torch
from racegate.cli.app import app
from racegate.history.replayed import ReplayOutcome
from racegate.interpose.debugger import standard_streams
from racegate.targets.program.judge import judge_on
from racegate.targets.program.launch import DeviceServer, Program
from racegate.targets.program.workflow.replay import replay_program
from racegate.targets.program.workflow.witness import ProgramWitness, save_witnesses, witnesses_of
from repository import ROOT
from support import SCENARIOS

WITNESS = str(SCENARIOS / "witnesses" / "accepted-copy-after-row-move.witness.json")


def test_it_stops_in_the_engine_and_steps_through_it() -> None:
    words = ["replay", WITNESS, "--pdb"]
    done = CliRunner().invoke(app, words, input="p plan.step\nn\nn\ns\nc\n")
    assert done.exit_code == 1, done.output
    said = done.stdout
    assert said.startswith("d2h:accepted_counts@3 has landed.")
    places = [line for line in said.splitlines() if line.lstrip("(Pdb) ").startswith("> /")]
    assert all("/engine/rows/batch_rows.py(" in line for line in places)
    assert len(places) == 4, "where it stops, and behind each step"
    assert "(Pdb) 4\n" in said
    assert "realised (1 of 1 operation)" in said


@pytest.mark.parametrize("leave", ["q\n", "", "exit\n", "b 1\nq\n"])
def test_who_leaves_it_gets_the_end_of_the_replay(leave: str) -> None:
    done = CliRunner().invoke(app, ["replay", WITNESS, "--pdb"], input=leave)
    assert done.exit_code == 1, done.output
    assert "realised (1 of 1 operation)" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([WITNESS, WITNESS], "--pdb is for one witness, replayed once"),
        ([WITNESS, "--times", "2"], "--pdb is for one witness, replayed once"),
        ([WITNESS, "--json", "-"], "--pdb has standard output"),
    ],
)
def test_what_it_is_not_for_is_refused(words: list[str], said: str) -> None:
    done = CliRunner().invoke(app, ["replay", "--pdb", *words])
    assert done.exit_code == 2
    assert said in done.stderr


def test_without_it_nothing_stops() -> None:
    done = CliRunner().invoke(app, ["replay", WITNESS])
    assert "has landed" not in done.output


@contextmanager
def typed(text: str) -> Iterator[None]:
    """Standard input, as a pipe that somebody has written and closed."""
    before = os.dup(0)
    end, other = os.pipe()
    os.write(other, text.encode())
    os.close(other)
    os.dup2(end, 0)
    os.close(end)
    try:
        yield
    finally:
        os.dup2(before, 0)
        os.close(before)


@pytest.fixture(scope="module")
def witness(device: DeviceServer, tmp_path_factory: pytest.TempPathFactory) -> ProgramWitness:
    """Of the loader that the documents show, which overwrites what a copy has not read yet."""
    script = tmp_path_factory.mktemp("program") / "loader.py"
    shutil.copy(ROOT / "docs" / "examples" / "loader.py", script)
    program = Program((str(script),))
    found = judge_on(device, program, explores=True, runs_max=8, is_quiet=True)
    assert save_witnesses(found, program, script.with_name("w.witness.json"))
    return witnesses_of(found, program)[0]


@needs_cuda_torch
def test_it_stops_in_a_program_and_what_is_looked_at_changes_nothing(
    device: DeviceServer, witness: ProgramWitness, capfd: pytest.CaptureFixture[str]
) -> None:
    looks = "p staging\np [one.sum().item() for one in batches]\nn\np len(batches)\nc\n"
    with typed(looks), standard_streams() as place:
        replayed = replay_program(device, witness, times=1, debugger=place)
    plain = replay_program(device, witness, times=1)
    assert replayed.outcome is ReplayOutcome.REPRODUCED
    assert (replayed.expected, replayed.actual) == (plain.expected, plain.actual)
    said = capfd.readouterr().out
    assert "h2d@loader.py:main#1 has landed." in said
    assert "/loader.py(16)main()" in said
    assert "-> stream.synchronize()" in said
    assert "tensor([2., 2., 2., 2.])" in said
    assert "/loader.py(17)main()" in said, "one line more"
    assert "(Pdb) 3\n" in said


@needs_cuda_torch
@pytest.mark.parametrize("leave", ["q\n", ""])
def test_who_leaves_it_in_a_program_gets_the_end_of_the_replay(
    leave: str,
    device: DeviceServer,
    witness: ProgramWitness,
    capfd: pytest.CaptureFixture[str],
) -> None:
    with typed(leave), standard_streams() as place:
        replayed = replay_program(device, witness, times=1, debugger=place)
    assert replayed.outcome is ReplayOutcome.REPRODUCED
    assert "has landed" in capfd.readouterr().out
