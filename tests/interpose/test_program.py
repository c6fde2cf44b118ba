"""Whole programs on the virtual device, as a user starts them. Needs a CUDA build of torch."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import msgspec
import pytest

from cuda_torch import needs_cuda_torch
from racegate.history.finding import Verdict
from racegate.targets.program.result import ProgramResult
from warmed import Warmth, run_command

ROOT = Path(__file__).parents[2]


pytestmark = needs_cuda_torch

RACY = """
    import torch
    import racegate

    def step(host, value):
        host.copy_(value, non_blocking=True)
        {wait}
        return float(host.sum())

    print("printed by the program")
    host = torch.zeros(64, pin_memory=True)
    racegate.observe("sum", step(host, torch.ones(64, device="cuda")))
"""
MAIN = "from racegate.cli.start import main; main()"


def racegate(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_command(*arguments, cwd=folder, warmth=Warmth.PROGRAMS)


def start(
    folder: Path, text: str, *options: str, name: str = "script.py"
) -> subprocess.CompletedProcess[str]:
    (folder / name).write_text(textwrap.dedent(text))
    return racegate(folder, "torch", "run", *options, name)


def test_a_race_is_found_and_its_repair_is_silent(tmp_path: Path) -> None:
    racy = start(tmp_path, RACY.format(wait="pass"))
    assert (racy.returncode, racy.stdout) == (1, "printed by the program\n")
    assert "record an event after script.py:6 on the default stream" in racy.stderr
    assert "host (step)" in racy.stderr
    repaired = start(tmp_path, RACY.format(wait="torch.cuda.current_stream().synchronize()"))
    assert (repaired.returncode, "no conflict" in repaired.stderr) == (0, True)


def test_equal_of_one_view_is_answered_while_something_is_held(tmp_path: Path) -> None:
    """torch sees it by the address, and waits for nothing."""
    text = """
        import torch
        import racegate

        device = torch.ones(4, device="cuda")
        host = torch.zeros(4, pin_memory=True)
        host.copy_(device, non_blocking=True)
        racegate.observe("same", torch.tensor(torch.equal(device, device)))
        racegate.observe("shorter", torch.tensor(torch.equal(device, device[:2])))
        racegate.observe("landed", host.clone())
    """
    held = start(tmp_path, text, "--hold", "d2h* until forced")
    assert "observed same = True" in held.stderr, held.stderr
    assert "observed shorter = False" in held.stderr
    assert "observed landed = [0.0, 0.0, 0.0, 0.0]" in held.stderr


def test_finding_out_what_torch_uploads_writes_no_memory_of_the_device(tmp_path: Path) -> None:
    """A mask on the host is copied to memory that was freed while a copy still has to read it; what
    torch does with such a mask is found out at the first call of the kind.
    """
    text = """
        import torch
        import racegate

        kept, values = torch.zeros(4, device="cuda"), torch.zeros(3, device="cuda")
        given = torch.full((4,), 7.0, device="cuda")
        kept.copy_(given)
        del given
        values[torch.tensor([True, False, True])]
        racegate.observe("kept", kept.tolist())
    """
    held = start(tmp_path, text, "--hold", "copy_* until forced")
    assert "hold kept 1 back: copy_* until forced" in held.stderr, held.stderr
    assert "observed kept = [7.0, 7.0, 7.0, 7.0]" in held.stderr


def test_from_the_search_to_a_witness_and_back(tmp_path: Path) -> None:
    options = ("--witness", "w.witness.json", "--json", "-")
    done = start(tmp_path, RACY.format(wait="pass"), *options)
    assert (done.returncode, "printed by the program" in done.stderr) == (1, True)
    verdicts = msgspec.json.decode(done.stdout, type=ProgramResult)
    assert json.loads(msgspec.json.encode(verdicts)) == json.loads(done.stdout)
    (found,) = verdicts.findings
    assert (found.verdict, found.holds) == ("DIVERGENT", ("d2h@script.py:step#1 until forced",))
    again = start(tmp_path, RACY.format(wait="pass"), "--hold", "d2h@script.py:step#1")
    assert "observed sum = 0.0" in again.stderr
    # Lines move, and it is replayed all the same; the repaired program has nothing to show.
    moved = "# a line more\n\n" + textwrap.dedent(RACY.format(wait="pass"))
    (tmp_path / "script.py").write_text(moved)
    replayed = racegate(tmp_path, "torch", "replay", "w.witness.json")
    assert replayed.returncode == 1, replayed.stderr
    assert replayed.stdout.startswith(f"reproduced 1 of 1: [{found.signature}]")
    repaired = RACY.format(wait="torch.cuda.synchronize()")
    (tmp_path / "script.py").write_text(textwrap.dedent(repaired))
    silent = racegate(tmp_path, "replay", "w.witness.json", "--json", "-")
    assert silent.returncode == 6
    shown = json.loads(silent.stdout)
    assert (shown["outcome"], shown["signature"]) == ("nothing found", None)


def test_a_suppressed_finding_is_shown_and_a_stale_suppression_is_an_error(tmp_path: Path) -> None:
    entry = '[[suppression]]\nsignature = "{}"\nreason = "{}"\n'
    # The first is that of the race, wherever its lines are.
    known = entry.format("079052a38a3e", "nobody reads it") + entry.format("f" * 12, "repaired")
    (tmp_path / "known.toml").write_text(known)
    options = ("--suppressions", "known.toml", "--explore")
    done = start(tmp_path, "\n\n" + RACY.format(wait="pass"), *options)
    assert done.returncode == 2, done.stderr
    assert "suppressed [079052a38a3e] host (step), script.py:8 and script.py:10" in done.stderr
    assert "nobody reads it" in done.stderr
    assert "stale suppression ffffffffffff" in done.stderr
    assert "1 conflict, 1 of them suppressed, in 4 events" in done.stderr
    assert "search" not in done.stderr


def test_what_nobody_modelled_ends_the_run_with_its_name(tmp_path: Path) -> None:
    text = """
        import torch

        source = "template <typename T> T twice(T x) { return x + x; }"
        torch.cuda.jiterator._create_jit_fn(source)(torch.ones(4, device="cuda"))
    """
    done = start(tmp_path, text)
    assert done.returncode == 3
    assert "not modelled: cuModuleLoadData, which libtorch_cuda.so calls" in done.stderr


POLLING = """
    import torch
    import racegate

    host, done = torch.zeros(8, pin_memory=True), torch.cuda.Event()
    host.copy_(torch.ones(8, device="cuda"), non_blocking=True)
    done.record()
    rounds = 0
    while not done.query():
        rounds += 1
    racegate.observe("sum", float(host.sum()))
    racegate.observe("was ready", {seen})
"""


def test_both_answers_to_a_query_are_tried(tmp_path: Path) -> None:
    good = start(tmp_path, POLLING.format(seen="True"), "--explore")
    assert good.returncode == 0, good.stderr
    assert "1 x completion queries that no edge settles" in good.stderr
    branch = start(tmp_path, POLLING.format(seen="rounds == 0"))
    assert branch.returncode == 1
    assert '"not ready" change: was ready' in branch.stderr
    assert "was ready = True; with these answers False" in branch.stderr


INTERRUPTED = """
    import sys, torch
    import racegate

    def step():
        host = torch.zeros(8, pin_memory=True)
        host.copy_(torch.ones(8, device="cuda"), non_blocking=True)
        return float(host.sum())

    racegate.observe("sum", step())
    {then}
"""


@pytest.mark.parametrize(
    ("then", "message"),
    [
        (
            "print('here', flush=True)\n    while True: pass",
            "1 conflict in 4 events (torch {torch}), as far as it came: interrupted",
        ),
        (
            # The recorded run says that it ends; the runs of the search do not end.
            "from pathlib import Path\n"
            "    first = Path('first')\n"
            "    while first.exists(): pass\n"
            "    first.touch(); print('here', flush=True)",
            "search: 0 runs under full deferral, interrupted",
        ),
    ],
    ids=["recorded", "search"],
)
def test_ctrl_c_prints_what_is_done(tmp_path: Path, then: str, message: str) -> None:
    (tmp_path / "script.py").write_text(textwrap.dedent(INTERRUPTED.format(then=then)))
    # A shell starts what runs in its background with SIGINT ignored, and pytest may run there.
    main = f"import signal; signal.signal(signal.SIGINT, signal.default_int_handler); {MAIN}"
    command = [sys.executable, "-c", main, "torch", "run", "--explore", "script.py"]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "here\n"
    if "search" in message:  # the recorded run has to be over
        assert (tmp_path / "first").exists()
        wait_for_second_run(process.pid)
    process.send_signal(signal.SIGINT)
    _, text = process.communicate(timeout=200)
    version = re.search(r"torch (\S+)\)", text)
    assert process.returncode == 130, text
    assert version is not None
    assert message.format(torch=version[1]) in text
    assert "[" in text.split("CONFLICT 1 ")[1]


def wait_for_second_run(launcher: int) -> None:
    """Until the device has forked twice: the second run has another process than the first."""
    seen: set[str] = set()
    while len(seen) < 2:
        (server,) = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
        seen |= set(Path(f"/proc/{server}/task/{server}/children").read_text().split())


def guide() -> list[str]:
    """The Python of docs/interposer.md: the program with the race, and its repaired form."""
    page = (ROOT / "docs" / "interposer.md").read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", page, re.DOTALL)


def test_the_guide_goes_from_a_race_to_its_repair(tmp_path: Path) -> None:
    racy, repair, *_ = guide()
    assert len(racy.splitlines()) <= 30
    found = start(tmp_path, racy, "--explore", name="demo.py")
    assert found.returncode == 1
    page = (ROOT / "docs" / "interposer.md").read_text(encoding="utf-8")
    shown = re.findall(r"DIVERGENT \d \[.*?\].*?:", found.stderr)
    assert len(shown) == 2
    assert [line for line in shown if line not in page] == []
    before, _, rest = racy.partition("class Loader:")
    after = rest[rest.index("torch.manual_seed") :]
    silent = start(tmp_path, f"{before}{repair}\n\n{after}", "--explore", name="demo.py")
    assert (silent.returncode, "no conflict" in silent.stderr) == (0, True), silent.stderr


PARTS = """
    import torch
    from torch.testing._internal.two_tensor import TwoTensor

    device = torch.ones(64, device="cuda")
    one, two = (torch.zeros(64, pin_memory=True) for _ in range(2))
    pair = TwoTensor(one, two)
    one.copy_(device, non_blocking=True)
    {wait}
    pair = pair + 1
"""


def test_a_tensor_made_of_others_is_its_parts(tmp_path: Path) -> None:
    racy = start(tmp_path, PARTS.format(wait="pass"))
    assert (racy.returncode, "host read (add)" in racy.stderr) == (1, True), racy.stderr
    repaired = start(tmp_path, PARTS.format(wait="torch.cuda.synchronize()"))
    assert repaired.returncode == 0, repaired.stderr


def test_a_new_name_for_memory_is_no_access(tmp_path: Path) -> None:
    text = """
        import torch

        host = torch.empty(64, pin_memory=True)
        host.copy_(torch.ones(64, device="cuda"), non_blocking=True)
        other = torch.empty(0).set_(host.untyped_storage())
        torch.cuda.synchronize()
        assert other.sum() == 64
    """
    done = start(tmp_path, text)
    assert done.returncode == 0, done.stderr


def test_a_run_ends_as_python_ends(tmp_path: Path) -> None:
    text = """
        import atexit, sys, threading

        atexit.register(print, "at exit", end="")
        gate = threading.Event()
        threading.Thread(target=lambda: (gate.wait(), print("thread", end=", "))).start()
        gate.set()
        sys.exit(7)
    """
    done = start(tmp_path, text)
    assert (done.returncode, done.stdout) == (7, "thread, at exit")


def test_one_hold_is_judged_beside_the_run_without_it(tmp_path: Path) -> None:
    """Harm is DIVERGENT, a hold that changes nothing leaves the conflict open, and where there is
    no conflict it passes; one that keeps nothing back exercised nothing.
    """
    racy, right = (RACY.format(wait=wait) for wait in ("pass", "torch.cuda.synchronize()"))
    held = ("--hold", "d2h@script.py:step#1")
    nameless = ("--hold", "d2h@nobody.py:step#1")
    harm = start(tmp_path, racy, *held, "--json", "-")
    verdicts = msgspec.json.decode(harm.stdout, type=ProgramResult)
    assert (harm.returncode, verdicts.verdict, verdicts.changes) == (1, Verdict.DIVERGENT, ("sum",))
    assert "DIVERGENT the holds change: sum" in start(tmp_path, racy, *held).stderr
    nothing = start(tmp_path, racy, *nameless, "--json", "-")
    verdicts = msgspec.json.decode(nothing.stdout, type=ProgramResult)
    assert (nothing.returncode, verdicts.verdict) == (1, Verdict.CONFLICT)
    assert start(tmp_path, right, *nameless).returncode == 4
    unseen = racy.replace("racegate.observe", "print")
    assert start(tmp_path, unseen, *held).returncode == 1
