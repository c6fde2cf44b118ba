"""Edges that are put into a program in memory, run, and kept if they are a repair."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
from litmus.registry import Expected, load
from repairs import RepairedProgram, table

from cuda_torch import needs_cuda_torch
from racegate.history.exit_code import ExitCode
from racegate.interpose.errors import BadInput
from racegate.interpose.outcome import Ending, Plan
from racegate.report.targets.repairs import render_patch, render_repair
from racegate.targets.program.judge import judge_on
from racegate.targets.program.launch import DeviceServer, Program, checked_program
from racegate.targets.program.repairs.edges import SourceFiles, WaitKind
from racegate.targets.program.repairs.exported import export_test, plain_source
from racegate.targets.program.repairs.patches import (
    PatchResult,
    judge_patch,
    patched,
    read_patch,
)
from racegate.targets.program.repairs.proof import (
    ProgramRepair,
    repair_program,
    repaired_in,
    verdict_on,
)
from racegate.targets.program.repairs.trials import Trials
from repository import ROOT

pytestmark = needs_cuda_torch
REPORTS = ROOT / "reports" / "interposer"
LOADER = ROOT / "docs" / "examples" / "loader.py"
BEGIN = """
import torch
import racegate
a, b, c = (torch.zeros(64, device="cuda") for _ in range(3))
side, third = torch.cuda.Stream(), torch.cuda.Stream()
torch.cuda.synchronize()
"""
IN_ONE_LAUNCH = """
import torch, triton
import triton.language as tl

@triton.jit
def shift(x, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(x + at, tl.load(x + at + B))

shift[(2,)](torch.zeros(48, device="cuda"), B=16)
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
for step in range(3):  # over several lines, so that no edit of this statement is an edge
    total += loader.get(
        torch.full((64,), step + 1.0, pin_memory=True)
    )
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
# No line that uses the memory has a name for it; the one that asks for it has.
REUSE_IN_A_LOOP = (
    BEGIN
    + """
held = {}
def used():
    return held["chunk"].mul(2)
for step in range(3):
    with torch.cuda.stream(side):
        chunk = torch.full((64,), step + 1.0, device="cuda")
    torch.cuda.current_stream().wait_stream(side)
    held["chunk"] = chunk
    del chunk
    a.add_(used())
    del held["chunk"]
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


# The memory of `x` is the default stream's; its only name is gone when `side` reads it.
READ_ELSEWHERE = """import torch
from racegate.interpose import observe

side = torch.cuda.Stream()
torch.cuda.synchronize()
kept = []
def made(number):
    return torch.full((16, 16), float(number), device="cuda").t()
def doubled(x):
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        x = x.contiguous()
        x.add_(1)
        x.mul_(2)
    kept.append(x)
for number in range(4):
    doubled(made(number))
torch.cuda.current_stream().wait_stream(side)
observe("kept", torch.stack(kept))
"""


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


def test_a_file_that_is_to_stay_as_it_is_gets_no_edge(device: DeviceServer, tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(TWO_EDGES)
    trials = Trials(device, checked_program((str(script),)), SourceFiles(), 9)
    found = repaired_in(trials, verdict_on(device), untouched=str(script))
    assert (found.edges, found.diff, found.exit_code) == ((), "", ExitCode.FINDING)


@pytest.mark.parametrize(
    ("text", "stream"), [(REUSE, "current_stream()"), (REUSE_IN_A_LOOP, "default_stream()")]
)
def test_memory_that_is_handed_out_again_is_kept_from_its_allocator(
    device: DeviceServer, tmp_path: Path, text: str, stream: str
) -> None:
    found = repaired(device, tmp_path, text)
    assert [(edge.kind, edge.waiter) for edge in found.edges] == [("record_stream", "nobody")]
    assert f"+        chunk.record_stream(torch.cuda.{stream})" in found.diff


def test_a_reader_is_given_to_the_stream_whose_memory_it_reads(
    device: DeviceServer, tmp_path: Path
) -> None:
    found = repaired(device, tmp_path, READ_ELSEWHERE)
    assert [(edge.kind, edge.waiter) for edge in found.edges] == [("owner", "stream")]
    assert "+        with torch.cuda.stream(" in found.diff
    assert (found.after, found.left) == ("PROVED", ())


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


HALF = """--- a/program.py
+++ b/program.py
@@ -7,4 +7,5 @@

 with torch.cuda.stream(side):
     a.fill_(1)
+torch.cuda.synchronize()
 b.copy_(a)
"""
OTHER_HALF = """--- program.py
+++ program.py
@@ -12,2 +12,3 @@
 with torch.cuda.stream(third):
+    third.wait_stream(torch.cuda.default_stream())
     c.copy_(b)
"""
FIRST_TWICE = """@@ -6,2 +6,4 @@
 torch.cuda.synchronize()
+side.wait_stream(third)
+torch.cuda.current_stream().wait_stream(side)

"""


def judged(
    device: DeviceServer, folder: Path, diff: str, monkeypatch: pytest.MonkeyPatch
) -> PatchResult:
    monkeypatch.chdir(folder)
    Path("program.py").write_text(TWO_EDGES)
    patch = read_patch(diff, source="mine.diff")
    program = checked_program((str(folder / "program.py"),))
    return judge_patch(device, program, patch, source="mine.diff", runs_max=9)[0]


def waited_for(text: str) -> int:
    """The operations that a line of a patch waits for, as it is told."""
    return int(text.rpartition("(")[2].partition(" ")[0])


def test_half_a_repair_is_refused_with_what_shows_the_other_half(
    device: DeviceServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = judged(device, tmp_path, HALF, monkeypatch)
    assert (len(found.repairs), len(found.leaves), found.exit_code) == (1, 1, ExitCode.FINDING)
    assert found.leaves[0].holds
    assert "torch.cuda.synchronize()" in found.host_waits[0]
    assert found.stream_waits == ()
    assert 0 < found.operations <= waited_for(found.host_waits[0])
    assert "LEAVES" in render_patch(found, "mine.diff")


def test_a_whole_repair_passes_and_what_it_does_not_need_is_named(
    device: DeviceServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    diff = HALF.partition("@@")[0] + FIRST_TWICE + HALF[HALF.index("@@") :] + OTHER_HALF
    found = judged(device, tmp_path, diff, monkeypatch)
    assert (len(found.repairs), found.leaves, found.exit_code) == (2, (), ExitCode.CLEAN)
    assert (found.after, found.unneeded) == ("PROVED", ("program.py:6",))
    assert any("third.wait_stream(" in text for text in found.stream_waits)
    told = map(waited_for, (*found.host_waits, *found.stream_waits))
    assert 0 < found.operations <= sum(told)


@pytest.mark.parametrize(
    ("diff", "said"),
    [
        ("nothing", "no change of a file"),
        (HALF.replace("program.py", "gone.py"), "gone.py is neither"),
        (HALF.replace("b.copy_(a)", "b.copy_(c)"), "does not fit"),
    ],
)
def test_a_patch_that_does_not_fit_is_bad_input(
    diff: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("program.py").write_text(TWO_EDGES)
    with pytest.raises(BadInput, match=said):
        patched(read_patch(diff, source="mine.diff"), source="mine.diff")


def test_an_exported_test_passes_without_racegate(device: DeviceServer, tmp_path: Path) -> None:
    """In it the program as it is corrupts a value when one copy is late; repaired it does not."""
    program = checked_program((str(LOADER),))
    (one,) = judge_on(device, program, explores=True, runs_max=9, is_quiet=True).judged
    text = export_test(device, program, one.race.signature, one.holds)
    assert "racegate" not in text
    (tmp_path / "test_race.py").write_text(text)
    exported = Program(("-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)))
    ran = device.run(exported, Plan(), is_quiet=True)
    assert (ran.ending, ran.exit_code) == (Ending.FINISHED, 0), ran.message
    (tmp_path / "test_race.py").write_text(text.replace("!=", "=="))
    assert device.run(exported, Plan(), is_quiet=True).exit_code == 1


def test_the_ten_exported_tests_pass_without_a_gpu(device: DeviceServer, tmp_path: Path) -> None:
    """Each corrupts as it is and is clean with its repair, in one process and under no settings of
    this repository.
    """
    told = tmp_path / "told.xml"
    options = ("-q", "-p", "no:cacheprovider", "-c", os.devnull, "--junit-xml", str(told))
    exported = Program(("-m", "pytest", *options, str(REPORTS / "exported")))
    ran = device.run(exported, Plan(), is_quiet=True)
    (suite,) = ElementTree.parse(told).getroot()
    counts = [int(suite.get(key, "")) for key in ("tests", "failures", "errors", "skipped")]
    assert (ran.exit_code, counts) == (0, [20, 0, 0, 0]), ran.message


def test_without_a_repair_the_control_stands_alone(device: DeviceServer, tmp_path: Path) -> None:
    """Both accesses are in one statement: no edge can be written between them."""
    seen = "(host.copy_(a + 1, non_blocking=True), host.sum().item())[1]"
    text = f'{BEGIN}host = torch.zeros(64, pin_memory=True)\nracegate.observe("s", {seen})\n'
    (tmp_path / "program.py").write_text(text)
    program = checked_program((str(tmp_path / "program.py"),))
    (one,) = judge_on(device, program, explores=True, runs_max=9, is_quiet=True).judged
    made = export_test(device, program, one.race.signature, one.holds)
    assert "test_a_late_operation_changes_nothing" in made
    assert "REPAIRED" not in made


def test_a_test_of_a_library_fails_until_the_library_is_repaired(
    device: DeviceServer, tmp_path: Path
) -> None:
    """The operation is held at the library's own line, whose stream the script has no name for."""
    library = tmp_path / "loading" / "prefetch.py"
    library.parent.mkdir()
    (library.parent / "__init__.py").touch()
    faulty = PREFETCH.replace("return source", "found = source").replace("self.stream", "stream")
    faulty = faulty.replace("        with", "        stream = torch.cuda.Stream()\n        with")
    faulty += "        return found\n"
    library.write_text(faulty)
    script = tmp_path / "program.py"
    script.write_text(USER.replace("from prefetch", "from loading.prefetch"))
    program = checked_program((str(script),))
    judged = judge_on(device, program, explores=True, runs_max=9, is_quiet=True).judged
    one = next(found for found in judged if found.race.first.operation == "h2d")
    text = export_test(device, program, one.race.signature, one.holds)
    assert "'loading.prefetch'" in text
    assert "racegate" not in text
    (tmp_path / "test_race.py").write_text(text)
    exported = Program(("-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)))
    assert device.run(exported, Plan(), is_quiet=True).exit_code == 1
    wait = "        torch.cuda.current_stream().wait_stream(stream)\n        return found\n"
    library.write_text(faulty.replace("        return found\n", wait))
    ran = device.run(exported, Plan(), is_quiet=True)
    assert (ran.ending, ran.exit_code) == (Ending.FINISHED, 0), ran.message
    # Reached by nobody, the line would hold nothing, and the test would pass for no reason.
    (tmp_path / "test_race.py").write_text(text.replace("'loading.prefetch'", "'loading.other'"))
    assert device.run(exported, Plan(), is_quiet=True).exit_code == 1


def test_a_program_that_observes_nothing_is_not_exported() -> None:
    with pytest.raises(BadInput, match="observes nothing"):
        plain_source("import torch\n")
    with pytest.raises(BadInput, match="more of racegate"):
        plain_source("import racegate\nracegate.observe('a', 1)\nracegate.recording()\n")


def test_a_join_is_moved_before_what_it_orders(device: DeviceServer, tmp_path: Path) -> None:
    found = repaired(device, tmp_path, THREADS)
    assert [(edge.kind, edge.waiter) for edge in found.edges] == [("moved", "host")]
    assert "-worker.join()" in found.diff


def test_an_edge_that_ends_a_thread_is_refused_at_once(
    device: DeviceServer, tmp_path: Path
) -> None:
    """Who asks again and again for the work of a thread that has died would never end."""
    script = tmp_path / "program.py"
    script.write_text("")
    text = "import threading, time\nthreading.Thread(target=lambda: stream).start()\n"
    text += "while True:\n    time.sleep(0.001)\n"
    program = Program((str(script),), sources=((str(script), text),))
    ran = device.run(program, Plan(), is_quiet=True)
    assert (ran.ending, ran.exit_code) == (Ending.FAILED, 1)
    assert "NameError: name 'stream' is not defined" in ran.message


def test_threads_that_hand_nothing_over_are_told_so(device: DeviceServer, tmp_path: Path) -> None:
    found = repaired(device, tmp_path, THREADS.replace("worker.join()", ""))
    assert (len(found.left), found.exit_code) == (1, ExitCode.FINDING)
    assert "hand over" in render_repair(found, "program.py")


def test_programs_of_one_launch_are_ordered_by_no_edge(
    device: DeviceServer, tmp_path: Path
) -> None:
    found = repaired(device, tmp_path, IN_ONE_LAUNCH)
    assert (found.exit_code, found.edges) == (ExitCode.FINDING, ())
    assert "nothing orders two programs of one launch" in found.left[0].reason


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


def test_every_racy_litmus_program_is_repaired_or_the_reason_is_said() -> None:
    """The table has all of them, and says what its file of results says."""
    rows = msgspec.json.decode((REPORTS / "repairs.json").read_bytes(), type=list[RepairedProgram])
    racy = [one.name for one in load().values() if one.expected is Expected.RACY]
    assert [row.name for row in rows] == racy
    assert [row.name for row in rows if not (row.is_proved or row.is_explained)] == []
    assert (REPORTS / "repairs.md").read_text() == table(rows)
