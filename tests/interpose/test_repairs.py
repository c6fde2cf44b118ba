"""Edges that are put into a program in memory, run, and kept if they are a repair."""

from __future__ import annotations

import subprocess
from pathlib import Path

from cuda_torch import needs_cuda_torch
from racegate.history.exit_code import ExitCode
from racegate.report.targets.repairs import render_repair
from racegate.targets.program.judge import judge_on
from racegate.targets.program.launch import DeviceServer, checked_program
from racegate.targets.program.repairs.edges import WaitKind
from racegate.targets.program.repairs.proof import ProgramRepair, repair_program
from repository import ROOT

pytestmark = needs_cuda_torch
LOADER = ROOT / "docs" / "examples" / "loader.py"
BEGIN = """
import torch
import racegate
a, b, c = (torch.zeros(64, device="cuda") for _ in range(3))
side, third = torch.cuda.Stream(), torch.cuda.Stream()
torch.cuda.synchronize()
"""
# A library function whose result nobody waits for, used twice.
PREFETCH = """
import torch


class Prefetch:
    def __init__(self):
        self.stream = torch.cuda.Stream()

    def get(self, source):
        with torch.cuda.stream(self.stream):
            return source.to("cuda", non_blocking=True)
"""
USER = """
import torch
import racegate
from prefetch import Prefetch

loader = Prefetch()
total = torch.zeros(64, device="cuda")
torch.cuda.synchronize()
for step in range(3):
    total += loader.get(torch.full((64,), step + 1.0, pin_memory=True))
torch.cuda.synchronize()
racegate.observe("total", total)
print("total", total[0].item())
"""
TWO_EDGES = (
    BEGIN
    + """
with torch.cuda.stream(side):
    a.fill_(1)
b.copy_(a)
with torch.cuda.stream(third):
    c.copy_(b)
torch.cuda.synchronize()
racegate.observe("c", c)
"""
)
THREADS = (
    BEGIN
    + """
import threading
def fill():
    a.fill_(1)
worker = threading.Thread(target=fill)
worker.start()
a.mul_(3)
worker.join()
torch.cuda.synchronize()
"""
)
REUSE = (
    BEGIN
    + """
for step in range(2):
    chunk = torch.full((64,), step + 1.0, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        a.add_(chunk)
    del chunk
torch.cuda.synchronize()
racegate.observe("a", a)
"""
)
READ = (
    BEGIN
    + """
host = torch.zeros(64, pin_memory=True)
host.copy_(a + 1, non_blocking=True)
print(host[0].item())
"""
)


def repaired(
    device: DeviceServer, folder: Path, text: str, *, most: WaitKind = WaitKind.HOST, runs: int = 99
) -> ProgramRepair:
    (folder / "program.py").write_text(text)
    program = checked_program((str(folder / "program.py"),))
    return repair_program(device, program, waiter_max=most, runs_max=runs)


def test_a_fresh_buffer_is_cheaper_than_a_wait_of_the_host(device: DeviceServer) -> None:
    found = repair_program(device, checked_program((str(LOADER),)))
    assert [(edge.kind, edge.waiter) for edge in found.edges] == [("second buffer", "nobody")]
    assert (found.after, found.left, found.exit_code) == ("PROVED", (), ExitCode.CLEAN)
    assert found.edges[0].without == found.conflicts
    assert len([text for text in found.others if "host waits" in text]) >= 2


def test_two_conflicts_have_two_edges_and_each_is_needed(
    device: DeviceServer, tmp_path: Path
) -> None:
    found = repaired(device, tmp_path, TWO_EDGES)
    assert [edge.waiter for edge in found.edges] == ["stream", "stream"]
    assert sorted(name for edge in found.edges for name in edge.without) == sorted(found.conflicts)
    assert (len(found.conflicts), found.after) == (2, "PROVED")
    assert all(edge.operations > 0 for edge in found.edges)


def test_the_diff_applies_and_is_what_was_proved(device: DeviceServer, tmp_path: Path) -> None:
    found = repaired(device, tmp_path, TWO_EDGES)
    diff = found.diff.replace(str(tmp_path / "program.py"), "program.py")
    subprocess.run(["patch", "-p0"], cwd=tmp_path, input=diff, text=True, check=True)
    program = checked_program((str(tmp_path / "program.py"),))
    judged = judge_on(device, program, explores=False, runs_max=1, is_quiet=True)
    assert judged.races == ()


def test_an_edge_stands_in_the_library_that_lacks_it(device: DeviceServer, tmp_path: Path) -> None:
    (tmp_path / "prefetch.py").write_text(PREFETCH)
    found = repaired(device, tmp_path, USER)
    assert (found.after, found.left) == ("PROVED", ())
    assert "prefetch.py" in found.diff
    assert (tmp_path / "prefetch.py").read_text() == PREFETCH


def test_memory_that_is_handed_out_again_is_kept_from_its_allocator(
    device: DeviceServer, tmp_path: Path
) -> None:
    found = repaired(device, tmp_path, REUSE)
    assert [(edge.kind, edge.waiter) for edge in found.edges] == [("record_stream", "nobody")]
    assert "+        chunk.record_stream(torch.cuda.current_stream())" in found.diff


def test_only_a_host_can_wait_for_what_it_reads(device: DeviceServer, tmp_path: Path) -> None:
    found = repaired(device, tmp_path, READ, most=WaitKind.STREAM)
    assert (found.edges, found.exit_code) == ((), ExitCode.FINDING)
    assert "no edge can be written" in found.left[0].reason
    assert [edge.waiter for edge in repaired(device, tmp_path, READ).edges] == ["host"]


def test_the_whole_device_is_waited_for_only_if_that_is_asked_for(
    device: DeviceServer, tmp_path: Path
) -> None:
    kept = repaired(device, tmp_path, READ, most=WaitKind.DEVICE)
    assert [edge.waiter for edge in kept.edges] == ["host"]
    assert any("device waits" in text for text in kept.others)
    assert not any("device waits" in text for text in repaired(device, tmp_path, READ).others)


def test_threads_that_hand_nothing_over_are_told_so(device: DeviceServer, tmp_path: Path) -> None:
    found = repaired(device, tmp_path, THREADS)
    assert (len(found.left), found.exit_code) == (1, ExitCode.FINDING)
    assert "hand over" in render_repair(found, "program.py")


def test_what_is_not_tried_is_no_reason(device: DeviceServer, tmp_path: Path) -> None:
    found = repaired(device, tmp_path, TWO_EDGES, runs=4)
    assert (found.is_complete, found.exit_code) == (False, ExitCode.INCONCLUSIVE)
    assert "allow more runs" in found.left[0].reason


def test_a_program_without_conflicts_needs_nothing(device: DeviceServer, tmp_path: Path) -> None:
    found = repaired(device, tmp_path, BEGIN)
    assert (found.reason, found.exit_code) == ("the program has no conflict", ExitCode.CLEAN)


def test_a_program_that_fails_is_not_repaired(device: DeviceServer, tmp_path: Path) -> None:
    found = repaired(device, tmp_path, "raise SystemExit(5)")
    assert found.exit_code == ExitCode.SCRIPT_FAILED
