"""Every program that was once judged wrongly has its verdict, and so has its correct twin."""

from __future__ import annotations

from pathlib import Path

import held_out
import pytest
from held_out import Expect, Standing

from cuda_torch import needs_cuda_torch
from together import failures
from warmed import Warmth, run_command

SCRIPTS = held_out.scripts()
TOPICS = sorted({script.parent.name for script in SCRIPTS})


def run_warmed(words: tuple[str, ...], folder: Path, timeout_s: float) -> tuple[int, str]:
    done = run_command(*words, cwd=folder, warmth=Warmth.PROGRAMS, timeout_s=timeout_s)
    return done.returncode, done.stdout + done.stderr


def is_right(script: Path) -> None:
    row = held_out.judge(script, run_warmed)
    assert row.standing is Standing.RIGHT, f"{row.standing}, {row.exit_code}: {row.text}"


@needs_cuda_torch
@pytest.mark.parametrize("topic", TOPICS)
def test_every_case_is_judged_as_it_says(topic: str) -> None:
    cases = [script for script in SCRIPTS if script.parent.name == topic]
    assert failures(is_right, cases, named=held_out.name_of) == []


def test_every_case_that_is_not_silent_has_a_correct_twin() -> None:
    cases = {held_out.name_of(script): held_out.read(script) for script in SCRIPTS}
    repaired = {
        f"{name.partition('/')[0]}/{faulty}"
        for name, case in cases.items()
        if case.expect is Expect.SILENT
        for faulty in case.twin
    }
    wanted = {name for name, case in cases.items() if case.expect is not Expect.SILENT}
    assert repaired == wanted


@pytest.mark.parametrize(
    ("expect", "code", "text", "standing"),
    [
        ("silent", 0, "no conflict", Standing.RIGHT),
        ("silent", 0, "", Standing.OTHER),
        ("silent", 1, "no conflict", Standing.FALSE),
        ("silent", 3, "no conflict", Standing.OTHER),
        ("conflict", 0, "no conflict", Standing.WRONG_PASS),
        ("conflict", 1, "no conflict", Standing.RIGHT),
        ("conflict", 1, "", Standing.LOST),
        ("conflict", 3, "no conflict", Standing.LOST),
        ("inconclusive", 0, "no conflict", Standing.WRONG_PASS),
        ("inconclusive", 1, "no conflict", Standing.FALSE),
    ],
)
def test_what_becomes_of_a_case(
    tmp_path: Path, expect: str, code: int, text: str, standing: Standing
) -> None:
    script = tmp_path / "case.py"
    script.write_text(f'# expect = "{expect}"\n# says = ["conflict"]\n\nprint()\n')
    row = held_out.judge(script, lambda words, folder, timeout_s: (code, text))
    assert row.standing is standing
    assert held_out.table([row]).splitlines()[-1].startswith("| all | 1 |")
