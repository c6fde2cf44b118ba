"""What a finding calls the bytes and the places, in whole programs. Needs a CUDA build of torch."""

from __future__ import annotations

import textwrap
from pathlib import Path

from cuda_torch import needs_cuda_torch
from racegate.history.finding import Race
from racegate.interpose.outcome import Outcome, Plan
from racegate.report.targets.programs import render
from racegate.targets.program.judge import judge_on
from racegate.targets.program.launch import DeviceServer, Program

pytestmark = needs_cuda_torch

TWO_OF_ONE_EDGE = """
    import torch

    side = torch.cuda.Stream()
    a, b = torch.zeros(64, device="cuda"), torch.zeros(64, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        a.fill_(1)
        b.fill_(2)
    total = a.sum() + b.sum()
"""
SCALER = """
    import torch

    weight = torch.ones(4, device="cuda", requires_grad=True)
    weight.grad = torch.full_like(weight, float("inf"))
    optimizer = torch.optim.SGD([weight], lr=0.1, fused=True)
    scaler = torch.amp.GradScaler(init_scale=5)
    scaler.scale(torch.ones(5))  # on the host, as the scale then is
    scaler.step(optimizer)
"""
ROW = """
    import torch

    rows = torch.zeros(8, 16, pin_memory=True)
    rows[5].copy_(torch.ones(16, device="cuda"), non_blocking=True)
    total = float(rows[5:7].sum())
"""
FREED = """
    import torch

    side = torch.cuda.Stream()
    def lend():
        lent = torch.ones(4096, device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            return lent.sum()
    total = lend()
    other = torch.zeros(4096, device="cuda")
"""


def outcome_of(device: DeviceServer, folder: Path, text: str) -> Outcome:
    script = folder / "script.py"
    script.write_text(textwrap.dedent(text))
    return device.run(Program((str(script),)), Plan())


def only(found: Outcome) -> Race:
    (race,) = found.findings
    return race


def test_conflicts_that_one_edge_orders_are_told_as_one(
    device: DeviceServer, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(TWO_OF_ONE_EDGE))
    found = judge_on(device, Program((str(script),)), explores=False, runs_max=0)
    assert len(found.races) == 2
    assert {race.cause for race in found.races} == {
        "record an event after script.py:9 on stream 1 and wait for it before script.py:10 (the "
        "default stream.wait_event(event))"
    }
    text = render(found, "script.py")
    assert text.count("edge    ") == 1, text
    assert f"also    CONFLICT [{found.races[1].signature}] b (<module>)" in text
    assert "2 conflicts of 1 missing edge in" in text


def test_two_accesses_of_one_line_are_told_by_the_lines_of_torch(
    device: DeviceServer, tmp_path: Path
) -> None:
    race = only(outcome_of(device, tmp_path, SCALER))
    for side in (race.first, race.second):
        assert side.stack[0][0].endswith("script.py")
        assert side.place.startswith("grad_scaler.py:")
    assert race.first.place != race.second.place
    assert race.first.place in race.edge


def test_bytes_of_a_row_are_named_by_the_row(device: DeviceServer, tmp_path: Path) -> None:
    race = only(outcome_of(device, tmp_path, ROW))
    assert (race.buffer, race.first.within) == ("rows[5] (<module>)", ())


def test_memory_that_was_freed_is_named_by_who_had_it(device: DeviceServer, tmp_path: Path) -> None:
    race = only(outcome_of(device, tmp_path, FREED))
    assert race.buffer == "memory asked for at script.py:6, and freed"
    assert "handed out again at script.py:11" in race.edge
