"""Scripts that cannot be judged, or do what they should not: a clear message, the right exit code,
nothing hangs, and no process is left behind. Needs a CUDA build of torch, but for the first part.
"""

from __future__ import annotations

import os
import subprocess
import textwrap
import zipfile
from pathlib import Path

import pytest

from cuda_torch import needs_cuda_torch
from racegate.interpose.errors import BadInput
from racegate.interpose.outcome import Ending
from racegate.report.targets.programs import render
from racegate.targets.program.judge import ProgramVerdict, judge_on
from racegate.targets.program.launch import DeviceServer, checked_program
from warmed import Warmth, run_command

RUN = ("torch", "run", "--explore", "script.py")

# ---- what is known before anything runs


def reason(*argv: str) -> str:
    with pytest.raises(BadInput) as caught:
        checked_program(argv)
    return str(caught.value)


def test_no_script_says_how_to_name_one() -> None:
    assert "racegate torch run SCRIPT" in reason()
    assert "racegate torch run SCRIPT" in reason("-m")
    assert reason("--explroe", "x.py") == "no such option: --explroe"


def test_a_script_that_is_not_there(tmp_path: Path) -> None:
    assert reason(str(tmp_path / "no.py")) == f"{tmp_path}/no.py does not exist"


def test_a_folder_is_a_script_only_with_a_main(tmp_path: Path) -> None:
    assert "is a folder without a __main__.py" in reason(str(tmp_path))
    (tmp_path / "__main__.py").write_text("")
    assert checked_program((str(tmp_path),)).argv == (str(tmp_path),)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"import os\ndef f(:\n", "line 2: invalid syntax"),
        (b"name = '\xe9'\n", "line 1: (unicode error) 'utf-8' codec can't decode"),
        (b"\x7fELF\x02\x01\x01\x00\x00", "is not a Python script"),
        (b"col1,col2\n1;2\n%%\n", "is not a Python script: line 3"),
    ],
    ids=["syntax", "latin-1", "binary", "text"],
)
def test_a_file_that_is_no_python(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "x.py").write_bytes(content)
    text = reason(str(tmp_path / "x.py"))
    assert text.startswith(f"{tmp_path}/x.py is not a Python script")
    assert message in text


def test_an_archive_of_python_is_a_script(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "app.pyz", "w") as archive:
        archive.writestr("__main__.py", "print(1)")
    checked_program((str(tmp_path / "app.pyz"),))


def test_a_module_that_is_not_there() -> None:
    assert reason("-m", "no_such_module.part") == "no module named no_such_module"
    checked_program(("-m", "json.tool"))


def test_the_command_line_says_it_and_ends_with_2(tmp_path: Path) -> None:
    done = run_command("torch", "run", str(tmp_path / "none.py"), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"racegate: {tmp_path}/none.py does not exist\n"


# ---- what shows when it runs


def judged(
    device: DeviceServer, folder: Path, text: str, *, timeout_s: float = 60
) -> ProgramVerdict:
    script = folder / "script.py"
    script.write_text(textwrap.dedent(text))
    program = checked_program((str(script),), timeout_s=timeout_s)
    return judge_on(device, program, explores=False, runs_max=1)


@needs_cuda_torch
@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("raise ValueError('mine')", 7, "the script failed by itself: ValueError: mine"),
        ("import sys; sys.exit(3)", 7, "ended with exit code 3"),
        ("import sys; sys.exit('told')", 7, "ended with exit code 1"),
        ("import os; os._exit(5)", 7, "with exit code 5 before its script was over"),
        ("import os; os._exit(0)", 7, "nothing was judged"),
        ("import os; os.kill(os.getpid(), 9)", 137, "by SIGKILL before its script was over"),
        ("import ctypes; ctypes.string_at(0)", 139, "by SIGSEGV before its script was over"),
        ("import no_such_module", 7, "No module named 'no_such_module'"),
        ("import torch; torch.zeros(2, device='cuda:1')", 7, "the virtual machine has one GPU"),
        ("print('x' * 50_000_000)", 4, "no conflict"),
        ("print(repr(input()))", 7, "EOFError"),
    ],
    ids=[
        "raises", "exits", "exits-with-text", "_exit", "_exit-0", "killed", "crashes",
        "import", "second-gpu", "prints-much", "reads-a-closed-stdin",
    ],
)  # fmt: skip
def test_a_script_that_fails_by_itself_has_a_code_of_its_own(
    device: DeviceServer, tmp_path: Path, text: str, code: int, message: str
) -> None:
    verdicts = judged(device, tmp_path, text)
    assert (verdicts.exit_code, message in render(verdicts, "x")) == (code, True), verdicts


@needs_cuda_torch
def test_a_program_that_does_not_end_is_ended_and_says_where_it_stood(
    device: DeviceServer, tmp_path: Path
) -> None:
    text = """
        import threading

        def takes(first, second, met):
            with first:
                met.wait()
                with second:
                    pass

        one, other, met = threading.Lock(), threading.Lock(), threading.Barrier(2)
        thread = threading.Thread(target=takes, args=(other, one, met))
        thread.start()
        takes(one, other, met)
    """
    verdicts = judged(device, tmp_path, text, timeout_s=4)
    assert (verdicts.shown.ending, verdicts.exit_code) == (Ending.TIMED_OUT, 2)
    assert "did not end within 4 s" in verdicts.shown.message
    stood = "it stood at script.py:7 in takes"
    assert verdicts.shown.message.count(stood) == 2, verdicts.shown.message


@needs_cuda_torch
def test_a_fork_is_counted_and_judged_once(device: DeviceServer, tmp_path: Path) -> None:
    text = """
        import os, torch
        torch.zeros(1, device="cuda")
        if os.fork():
            os.wait()
        else:
            import sys
            sys.stdout.flush()  # and goes on to the end of the script, as its parent does
    """
    verdicts = judged(device, tmp_path, text)
    assert verdicts.exit_code == 0
    assert verdicts.shown.not_seen == {"processes forked by the program (what they do)": 1}


@needs_cuda_torch
def test_processes_that_are_started_are_counted(device: DeviceServer, tmp_path: Path) -> None:
    text = """
        import multiprocessing, subprocess, sys

        import torch

        def work(number):
            return number + 1

        if __name__ == "__main__":
            torch.zeros(1, device="cuda")
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                assert pool.map(work, [1]) == [2]
            itself = [sys.executable, "-c", "import sys; sys.exit(4)"]
            assert subprocess.run(itself).returncode == 4
    """
    verdicts = judged(device, tmp_path, text)
    assert verdicts.exit_code == 0, verdicts
    (count,) = (n for what, n in verdicts.shown.not_seen.items() if "started by" in what)
    assert count >= 2  # the spawned worker, and itself


@needs_cuda_torch
@pytest.mark.parametrize(
    "start",
    [
        "subprocess.Popen(['sleep', '1000'])",
        "subprocess.Popen(['sleep', '1000'], start_new_session=True)",
        "os.fork() or signal.pause()",
    ],
)
def test_no_process_is_left_behind(device: DeviceServer, tmp_path: Path, start: str) -> None:
    text = f"""
        import os, signal, subprocess, torch
        from pathlib import Path
        torch.zeros(1, device="cuda")
        started = {start}
        number = started.pid if hasattr(started, "pid") else started
        Path({str(tmp_path / "pid")!r}).write_text(str(number))
    """
    assert judged(device, tmp_path, text).exit_code == 0
    number = int((tmp_path / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)


@needs_cuda_torch
def test_every_run_reads_standard_input_from_its_beginning(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        textwrap.dedent("""
            import sys, torch
            from racegate import observe
            words = sys.stdin.read().split()
            host = torch.zeros(8, pin_memory=True)
            host.copy_(torch.ones(8, device="cuda"), non_blocking=True)
            observe("read", (words, float(host.sum())))
        """)
    )
    words = tmp_path / "words"
    words.write_text("one two\n")
    with (
        subprocess.Popen(["cat", str(words)], stdout=subprocess.PIPE) as cat,
        words.open("rb") as file,
    ):
        for stdin in (cat.stdout, file):
            done = run_command(*RUN, cwd=tmp_path, warmth=Warmth.PROGRAMS, stdin=stdin)
            assert done.returncode == 1, done.stderr
            assert "read = (['one', 'two'], 8.0)" in done.stderr
            assert "with the hold (['one', 'two'], 0.0)" in done.stderr
