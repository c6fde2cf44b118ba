"""A program that forks, starts others or asks for a second GPU is told so, and keeps its code."""

from __future__ import annotations

import textwrap
from pathlib import Path

from cuda_torch import needs_cuda_torch
from warmed import Warmth, run_command

pytestmark = needs_cuda_torch

PROGRAM = """
    import ctypes.util, multiprocessing, os, subprocess, sys
    import torch

    def look(answers):
        answers.put(torch.cuda.is_available())

    if __name__ == "__main__":
        here = torch.zeros(4, device="cuda")
        pid = os.fork()
        if pid == 0:
            print("forked child computes", (here + 1).sum().item())
            sys.exit(3)
        print("forked child ended with", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        ctypes.util.find_library("pthread")
        subprocess.run([sys.executable, "-c", "pass"], check=True)
        context = multiprocessing.get_context("spawn")
        answers = context.Queue()
        process = context.Process(target=look, args=(answers,))
        process.start()
        print("spawned process has a GPU:", answers.get())
        process.join()
        try:
            torch.zeros(2, device="cuda:1")
        except RuntimeError as error:
            print("second GPU:", str(error).splitlines()[0])
        sys.exit(5)
"""


def test_other_processes_and_a_second_gpu_are_told_and_nothing_hangs(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(PROGRAM))
    words = ("torch", "run", "--timeout", "200", str(script))
    done = run_command(*words, cwd=tmp_path, warmth=Warmth.PROGRAMS)
    assert done.returncode == 7, done.stderr
    for line in (
        "forked child computes 4.0",
        "forked child ended with 3",
        "spawned process has a GPU: False",
        "(the virtual machine has one GPU)",
    ):
        assert line in done.stdout
    for line in ("processes forked by the program", "3 x processes started", "a GPU was asked for"):
        assert line in done.stderr
