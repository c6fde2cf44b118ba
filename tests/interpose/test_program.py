"""Whole programs on the virtual device, as a user starts them. Needs a CUDA build of torch."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from racegate.interpose.build import find_toolkit
from racegate.interpose.errors import BadInput


def why_not() -> str:
    try:
        find_toolkit()
    except BadInput as error:
        return str(error)
    return ""


pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "it can run")

RACY = """
    import torch
    from racegate.interpose import observe

    def step(host, value):
        host.copy_(value, non_blocking=True)
        {wait}
        return float(host.sum())

    host = torch.zeros(64, pin_memory=True)
    observe("sum", step(host, torch.ones(64, device="cuda")))
"""


def start(tmp_path: Path, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(text))
    command = [sys.executable, "-m", "racegate.interpose", *options, str(script)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=250)


def test_a_race_is_found_and_its_repair_is_silent(tmp_path: Path) -> None:
    racy = start(tmp_path, RACY.format(wait="pass"))
    assert racy.returncode == 1
    assert "record an event after script.py:6 on the default stream" in racy.stderr
    assert "host (step)" in racy.stderr
    repaired = start(tmp_path, RACY.format(wait="torch.cuda.current_stream().synchronize()"))
    assert (repaired.returncode, "no conflict" in repaired.stderr) == (0, True)


def test_the_search_shows_the_wrong_value_and_replays_it(tmp_path: Path) -> None:
    done = start(tmp_path, RACY.format(wait="pass"), "--explore", "--json")
    (judged,) = json.loads(done.stdout)["search"]["judged"]
    assert judged["verdict"] == "DIVERGENT"
    ((operation, until),) = judged["hold"]
    again = start(tmp_path, RACY.format(wait="pass"), "--hold", f"{operation} until {until}")
    assert "observed sum = 0.0" in again.stderr


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("raise ValueError('mine')", 1, "the script failed by itself: ValueError: mine"),
        ("import sys; sys.exit(7)", 7, "ended with exit code 7"),
        ("import os; os._exit(5)", 5, "before its script was over"),
        ("import torch; torch.zeros(2, device='cuda:1')", 1, "invalid device ordinal"),
    ],
)
def test_a_script_that_ends_itself_keeps_its_code(
    tmp_path: Path, text: str, code: int, message: str
) -> None:
    done = start(tmp_path, text)
    assert (done.returncode, message in done.stderr) == (code, True), done.stderr


def test_what_nobody_modelled_ends_the_run_with_its_name(tmp_path: Path) -> None:
    done = start(tmp_path, "import torch; torch.cuda._sleep(10)")
    assert done.returncode == 3
    assert "not modelled" in done.stderr
    assert "spin_kernel" in done.stderr


def test_a_program_that_does_not_end_is_ended(tmp_path: Path) -> None:
    done = start(tmp_path, "while True: pass", "--timeout", "3")
    assert (done.returncode, "did not end within 3 s" in done.stderr) == (2, True)


def test_a_script_that_is_not_there(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "racegate.interpose", str(tmp_path / "none.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, "does not exist" in done.stderr) == (2, True)
