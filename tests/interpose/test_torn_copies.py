"""Copies that land in two halves."""

from __future__ import annotations

import ctypes
import subprocess
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuda_torch import needs_cuda_torch
from racegate.history.schedule import Half, Hold, parse_hold
from racegate.interpose.device.copies import WORD, Copy, whole
from racegate.interpose.device.queue import Queue, covers
from warmed import Warmth, run_command

LABEL = "d2h@x.py:f#1"


def address_of(data: bytearray) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(data))


@given(st.binary(min_size=1, max_size=100), st.sampled_from(Half))
def test_two_halves_make_the_whole_and_no_word_is_torn(source: bytes, late: Half) -> None:
    data, to = bytearray(source), bytearray(b"\xff" * len(source))
    rest = Copy(address_of(to), address_of(data), len(source)).tear(late)
    middle = len(source) // 2 & -WORD
    landed = slice(0, middle) if late is Half.REST else slice(middle, None)
    blank = slice(middle, None) if late is Half.REST else slice(0, middle)
    assert to[landed] == source[landed]
    assert set(to[blank]) <= {0xFF}
    rest()
    assert to == source


@pytest.mark.parametrize(("half", "early"), [(Half.START, (0, 1)), (Half.REST, (1, 0))])
def test_a_hold_of_a_half_lands_the_other_and_waits_with_the_rest(
    half: Half, early: tuple[int, int]
) -> None:
    data, to = bytearray(b"\1" * 32), bytearray(32)
    hold = parse_hold(f"{half.value}{LABEL}")
    queue = Queue((hold,))
    queue.submit(LABEL, 1, 1, [0, 1], Copy(address_of(to), address_of(data), 32))
    assert (to[0], to[-1]) == early
    assert queue.realised == {hold.text(): 1}
    queue.force([0, 1])
    assert to == data


def test_behind_another_operation_nothing_lands_early() -> None:
    data, to = bytearray(b"\1" * 32), bytearray(32)
    queue = Queue((Hold(op="mul@x.py:f#1"), parse_hold(f"start of {LABEL}")))
    queue.submit("mul@x.py:f#1", 1, 1, [0, 1], lambda: None)
    queue.submit(LABEL, 1, 2, [0, 2], Copy(address_of(to), address_of(data), 32))
    assert to == bytearray(32)
    queue.force_all()
    assert to == data


def test_what_a_hold_of_a_half_names() -> None:
    assert whole(f"start of {LABEL}") == whole(f"rest of {LABEL}") == whole(LABEL) == LABEL
    assert covers(parse_hold("rest of d2h*"), LABEL)
    assert (Hold(op=LABEL).half, parse_hold("rest of d2h*").half) == (None, Half.REST)


# ---- a whole program

FLAG = """
    import torch
    import racegate

    result = torch.full((64,), 3.0, device="cuda")
    result[-1] = 1.0
    host = torch.zeros(64, pin_memory=True)
    host.copy_(result, non_blocking=True)
    if not host[-1].item():
        torch.cuda.synchronize()
    racegate.observe("payload", host[:-1].sum().item())
"""


@needs_cuda_torch
def test_what_only_a_torn_copy_shows_is_found_kept_and_replayed(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(textwrap.dedent(FLAG))

    def racegate(*arguments: str) -> subprocess.CompletedProcess[str]:
        return run_command("torch", *arguments, cwd=tmp_path, warmth=Warmth.PROGRAMS)

    found = racegate("run", "--witness", "torn.witness.json", "script.py")
    assert found.returncode == 1, found.stderr
    hold = "start of d2h@script.py:<module>#1 until forced"
    assert f"--hold '{hold}' script.py" in found.stderr
    assert "payload = 189.0; with the hold 93.0" in found.stderr
    again = racegate("replay", "torn.witness.json")
    assert (again.returncode, f"hold    {hold}" in again.stdout) == (1, True), again.stdout
