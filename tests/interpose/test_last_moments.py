"""No finding is lost: what looking at the program's objects raises, how it ends, what runs last."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from cuda_torch import needs_cuda_torch
from warmed import Warmth, run_command

pytestmark = needs_cuda_torch

STEP = """
import torch

host = torch.zeros(64, pin_memory=True)

def step():
    host.copy_(torch.ones(64, device="cuda"), non_blocking=True)
    return float(host.sum())
"""


def run(folder: Path, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(STEP + textwrap.dedent(text))
    arguments = ("torch", "run", *options, "script.py")
    return run_command(*arguments, cwd=folder, warmth=Warmth.PROGRAMS)


def outcome(folder: Path, text: str, *options: str) -> dict[str, Any]:
    """What the command writes."""
    run(folder, text, "--json", str(folder / "out.json"), *options)
    written: dict[str, Any] = json.loads((folder / "out.json").read_bytes())
    return written


NAMED = {
    "a dead weak reference among the globals": """
        import weakref
        class Thing: pass
        gone = weakref.proxy(Thing())
        try:
            step()
        except Exception:
            pass
    """,
    "an object that answers with an error": """
        class Rude:
            @property
            def __dict__(self):
                raise RuntimeError("no")
        rude = Rude()
        step()
    """,
    "inside of vmap": """
        def each(row):
            step()
            return row + 1
        torch.func.vmap(each)(torch.ones(3, 2, device="cuda"))
    """,
}


@pytest.mark.parametrize("text", NAMED.values(), ids=NAMED)
def test_naming_a_buffer_never_loses_its_conflict(tmp_path: Path, text: str) -> None:
    done = run(tmp_path, text)
    assert done.returncode == 1, done.stderr
    assert "1 conflict" in done.stderr


ENDS = {
    "256 is 0": ("import sys; step(); sys.exit(256)", 0),
    "-256 is 0": ("import sys; step(); sys.exit(-256)", 0),
    "-128 is 128": ("import sys; step(); sys.exit(-128)", 128),
    "True is 1": ("import sys; step(); sys.exit(True)", 1),
    "a text is 1": ("import sys; step(); sys.exit('enough')", 1),
}


@pytest.mark.parametrize(("text", "code"), ENDS.values(), ids=ENDS)
def test_an_exit_code_loses_no_finding(tmp_path: Path, text: str, code: int) -> None:
    found = outcome(tmp_path, text)
    assert (found["exit_code"], len(found["findings"])) == (code, 1)
    assert run(tmp_path, text).returncode != 0


def test_an_emptied_folder_of_temporary_files_loses_nothing(tmp_path: Path) -> None:
    text = """
        import shutil, tempfile
        from pathlib import Path
        step()
        found = list(Path(tempfile.gettempdir()).glob("racegate-*"))
        assert found
        for path in found:
            shutil.rmtree(path, ignore_errors=True)
    """
    (tmp_path / "script.py").write_text(STEP + textwrap.dedent(text))
    own = tmp_path / "temporary"  # not the one in which other tests have theirs
    own.mkdir()
    command = [sys.executable, "-m", "racegate", "torch", "run", "--timeout", "100", "script.py"]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "TMPDIR": str(own)}, capture_output=True
    )
    assert done.returncode == 1, done.stderr


def test_a_lower_number_of_open_files_loses_nothing(tmp_path: Path) -> None:
    text = """
        import resource
        step()
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
    """
    assert run(tmp_path, text).returncode == 1


STANDS = {
    "in a lock": "import threading; one = threading.Lock(); one.acquire(); one.acquire()",
    "in a loop": """
        while True:
            pass
    """,
}


def test_which_gpu_it_was_stands_in_the_result(tmp_path: Path) -> None:
    gpu = outcome(tmp_path, "step()", "--gpu", "t4-16g", "--memory", "1G")["config"]["gpu"]
    assert gpu == {
        "name": "Tesla T4",
        "memory_bytes": 1 << 30,
        "compute_capability": [7, 5],
        "sm_count": 40,
        "sm_threads": 1024,
        "sm_shared_bytes": 64 << 10,
        "l2_bytes": 4 << 20,
    }


@pytest.mark.parametrize("text", STANDS.values(), ids=STANDS)
def test_what_was_found_before_the_time_was_over_is_kept(tmp_path: Path, text: str) -> None:
    found = outcome(tmp_path, f"step()\n{textwrap.dedent(text)}", "--timeout", "2")
    assert (found["ending"], len(found["findings"])) == ("timed out", 1), found
    assert found["message"].startswith("the program did not end within 2 s\n  it stood at")


def test_where_the_main_thread_does_not_answer_nobody_claims_that_nothing_was_found(
    tmp_path: Path,
) -> None:
    text = """
        import ctypes
        step()
        mutex = ctypes.create_string_buffer(64)
        for _ in range(2):
            ctypes.CDLL(None).pthread_mutex_lock(mutex)
    """
    found = outcome(tmp_path, text, "--timeout", "2")
    assert (found["ending"], found["findings"]) == ("timed out", [])
    assert "what was found until then is not known" in found["message"]


BEHIND = {
    "atexit": "import atexit; atexit.register(step)",
    "weakref.finalize": """
        import weakref
        class Thing: pass
        thing = Thing()
        weakref.finalize(thing, step)
    """,
    "__del__ of an object of the module": """
        class Thing:
            def __del__(self):
                step()
        thing = Thing()
    """,
    "a thread that is no daemon": """
        import threading, time
        def later():
            threading.main_thread().join(0.2)
            step()
        threading.Thread(target=later).start()
    """,
}


@pytest.mark.parametrize("text", BEHIND.values(), ids=BEHIND)
def test_what_runs_behind_the_script_is_judged(tmp_path: Path, text: str) -> None:
    done = run(tmp_path, text)
    assert done.returncode == 1, done.stderr
    assert "1 conflict" in done.stderr


def test_an_executor_that_is_still_alive_ends_with_the_program(tmp_path: Path) -> None:
    text = """
        from concurrent.futures import ThreadPoolExecutor
        pool = ThreadPoolExecutor(2)
        print(pool.submit(lambda: 6 * 7).result())
        torch.ones(3, device="cuda").sum().item()
    """
    done = run(tmp_path, text, "--timeout", "60")
    assert (done.returncode, done.stdout) == (0, "42\n"), done.stderr


OUTLIVING = {
    "a daemon": "threading.Thread(target=threading.Event().wait, daemon=True).start()",
    "a raw thread": "_thread.start_new_thread(threading.Event().wait, ())",
}


@pytest.mark.parametrize("start", OUTLIVING.values(), ids=OUTLIVING)
def test_a_thread_that_outlives_the_program_is_mentioned(tmp_path: Path, start: str) -> None:
    text = f"""
        import _thread, threading
        {start}
        torch.ones(3, device="cuda").sum().item()
    """
    done = run(tmp_path, text)
    assert done.returncode == 0
    assert "threads that still ran at the end of the program" in done.stderr
