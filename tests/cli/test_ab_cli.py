"""racegate ab, as a user sees it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer
from test_cli import racegate
from test_cuda_cli import racegate as racegate_without_gpu

from racegate.cli.measure import ab as cli_ab
from racegate.cli.measure.ab import CallSpec, exit_code_of, line_of
from racegate.measure.ab import waves
from racegate.measure.ab.folder import open_folder
from racegate.measure.ab.running import WaveProgress, WaveShare, WaveSummary
from racegate.measure.ab.summary import AbReport, ArmReport, TruthReport, summarise
from racegate.measure.ab.workload import AbSpec, Arm
from support import SCENARIOS

TINY = (
    *("--device", "virtual", "--generations", "20", "--wave", "10", "--rows", "5"),
    *("--max-tokens", "30", "--vocab", "20", "--checked", "3"),
)
PLAN = AbSpec(
    device="virtual", generations=20, wave=10, rows=5, max_tokens=30, vocab_size=20, checked=3
)
TIMES = {"seconds": 0, "setup_seconds": 0, "tokens_per_second": 0}
HOW = CallSpec(share=WaveShare(), witnesses=SCENARIOS / "witnesses")
TWO_ARMS = ("--arm", "fault-free", "--arm", "accepted-double-remap")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A folder, and the JSON of the call that made it."""
    out = tmp_path_factory.mktemp("ab")
    result = racegate("ab", *TINY, *TWO_ARMS, "--out", str(out), "--json", "-")
    assert result.returncode == 0, result.stderr
    return out, json.loads(result.stdout)


def test_the_json_is_the_contract(run: tuple[Path, dict[str, Any]]) -> None:
    _, found = run
    assert set(found) == set(AbReport.__struct_fields__)
    assert set(found["truth"]) == set(TruthReport.__struct_fields__)
    assert found["schema"] == "racegate.ab/1"
    assert msgspec.convert(found["plan"], AbSpec) == PLAN
    right, wrong = found["arms"]
    assert set(right) == set(wrong) == set(ArmReport.__struct_fields__)
    assert (right["arm"], right["wrong"], right["lost"]) == ("fault-free", 0, 0)
    assert (wrong["fault"], wrong["generations"]) == ("accepted-double-remap", 20)
    assert wrong["wrong"] > 0
    assert list(right["found"]["below"]) == ["32", "64", "128", "256"]
    assert found["truth"]["checked"] == 3
    assert [(held["fault"], held["schedules"]) for held in found["held"]] == [
        ("accepted-double-remap", 1)
    ]
    (environment,) = found["environments"]
    assert {"commit", "cpu", "racegate", "device"} <= set(environment)


def test_a_second_call_runs_nothing_and_says_the_same(run: tuple[Path, dict[str, Any]]) -> None:
    out, found = run
    again = racegate("ab", *TINY, *TWO_ARMS, "--out", str(out), "--json", "-")
    assert json.loads(again.stdout) == found
    assert "wave" not in again.stderr
    # The report needs neither a GPU nor the options.
    only = racegate("ab", "--only", "report", "--out", str(out))
    assert only.returncode == 0
    assert "7 of 20480" in only.stdout
    assert "accepted-double-remap: shown by schedule 1" in " ".join(only.stdout.split())


def test_what_is_missing_is_inconclusive(run: tuple[Path, dict[str, Any]]) -> None:
    out, _ = run
    arms = (*TWO_ARMS, "--arm", "depth-1", "--arm", "truth")
    first = racegate("ab", *TINY, *arms, "--out", str(out), "--part", "1/2")
    assert first.returncode == 4
    assert "not complete: 1 waves are missing" in first.stdout
    assert re.match(r"1/1 depth-1 wave 0: 10 generations, 0 wrong, .* s left\n$", first.stderr)
    second = racegate("ab", *TINY, *arms, "--out", str(out), "--part", "2/2")
    assert second.returncode == 0
    assert second.stderr.count("depth-1 wave 1") == 1


def test_workers_share_the_waves(run: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    _, found = run
    out = ("--out", str(tmp_path), "--workers", "2", "--json", "-")
    result = racegate("ab", *TINY, "--arm", "accepted-double-remap", *out)
    assert result.returncode == 0, result.stderr
    shared = json.loads(result.stdout)
    for one, other in zip(shared["arms"], found["arms"][1:], strict=True):
        assert {**one, **TIMES} == {**other, **TIMES}
    assert result.stderr.count(" accepted-double-remap wave ") == 2


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--only", "report"), "needs --out"),
        (("--only", "report", "--out", "nowhere"), "holds no A/B run"),
        (("--device", "virtual", "--part", "3/2"), "second of four"),
        (("--device", "virtual", "--witnesses", "nowhere"), "cannot be read"),
        (("--device", "virtual", "--arm", "mystery"), "mystery"),
    ],
)
def test_bad_input(arguments: tuple[str, ...], reason: str) -> None:
    result = racegate("ab", *arguments)
    assert result.returncode == 2
    assert reason in result.stderr


def test_a_folder_of_another_run_is_refused(run: tuple[Path, dict[str, Any]]) -> None:
    result = racegate("ab", *TINY, "--seed", "3", "--out", str(run[0]))
    assert result.returncode == 2
    assert "seed 0, not 3" in result.stderr


def test_without_a_gpu_it_says_what_to_do() -> None:
    result = racegate_without_gpu("ab", "--json", "-")
    assert result.returncode == 2
    assert result.stdout == ""
    assert "needs a GPU" in result.stderr


def test_a_wrong_truth_ends_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(waves, "plain_tokens", lambda scenario, request: (0,) * 40)
    folder = open_folder(tmp_path, PLAN)
    with pytest.raises(typer.Exit) as ended:
        cli_ab._run(folder, [Arm.FAULT_FREE], HOW)
    assert ended.value.exit_code == 3
    assert "the truth is wrong: g0 of wave 0: token 0" in capsys.readouterr().err
    # What is wrong is not kept, and nothing is compared with it.
    assert folder.truth(0) is None
    assert folder.arms() == ()


def test_the_exit_code(tmp_path: Path) -> None:
    folder = open_folder(tmp_path, PLAN)
    cli_ab._run(folder, [Arm.GRAPHS_OFF], HOW)
    report = summarise(folder, [Arm.GRAPHS_OFF])
    assert exit_code_of(report) == 0
    assert exit_code_of(msgspec.structs.replace(report, missing=1)) == 4
    wrong = msgspec.structs.replace(report.arms[0], wrong=1)
    assert exit_code_of(msgspec.structs.replace(report, arms=(wrong,), missing=1)) == 1
    # Of a fault that is what is expected.
    fault = msgspec.structs.replace(wrong, fault="accepted-double-remap")
    assert exit_code_of(msgspec.structs.replace(report, arms=(fault,))) == 0


def test_a_line_of_progress() -> None:
    shown = WaveSummary(
        arm=Arm.FAULT_FREE,
        wave=3,
        generations=256,
        tokens=74_000,
        seconds=2.0,
        wrong=0,
        stopped="step 4: AssertionError: planted",
    )
    done = WaveProgress(
        shown=shown,
        done=25,
        units=100,
        elapsed_s=50.0,
    )
    assert line_of(done) == (
        "25/100 fault-free wave 3: 256 generations, 0 wrong, 2.0 s, 37,000 tokens/s, 150 s left, "
        "stopped: step 4: AssertionError: planted"
    )
