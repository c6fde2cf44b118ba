"""Programs of which nothing moves any more, and others that only wait."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from racegate.interpose.program import timeouts
from racegate.interpose.program.timeouts import Stillness

NEVER, AT_ONCE = 1e9, 0.0
LOCKED = "import threading; one = threading.Lock(); one.acquire(); one.acquire()"
CHILD = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {LOCKED!r}])"
PIPE = "import os; os.read(os.pipe()[0], 1)"
TYPED = "import sys; sys.stdin.read()"
PAUSE = "import time; time.sleep(600)"
ALARM = f"import signal; signal.signal(signal.SIGALRM, print); {LOCKED}"
TOLD = "import signal, threading; signal.signal(signal.SIGTERM, print); threading.Event().wait()"
PAUSED = "import signal; signal.pause()"


@pytest.mark.skipif(not timeouts._WAITS, reason="calls of this kind of processor are not known")
@pytest.mark.parametrize(
    ("code", "deadlock_s", "silence_s", "hangs"),
    [
        (LOCKED, AT_ONCE, NEVER, True),
        (CHILD, AT_ONCE, NEVER, True),
        (PIPE, AT_ONCE, NEVER, False),
        (PIPE, NEVER, AT_ONCE, True),
        (TYPED, AT_ONCE, AT_ONCE, False),
        (PAUSE, AT_ONCE, AT_ONCE, False),
        (ALARM, AT_ONCE, AT_ONCE, False),
        (TOLD, AT_ONCE, AT_ONCE, False),
        (PAUSED, AT_ONCE, AT_ONCE, False),
    ],
)
def test_what_hangs(
    monkeypatch: pytest.MonkeyPatch, *, code: str, deadlock_s: float, silence_s: float, hangs: bool
) -> None:
    monkeypatch.setattr(timeouts, "DEADLOCK_S", deadlock_s)
    monkeypatch.setattr(timeouts, "SILENCE_S", silence_s)
    command = [sys.executable, "-c", f"print('ready', flush=True); {code}"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, process_group=0) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == b"ready\n"
            status = Path(f"/proc/{process.pid}/status")
            while "State:\tS" not in status.read_text():
                pass
            stillness = Stillness(process.pid)
            while not any(looks := [stillness.is_over() for _ in range(3)]) and hangs:
                pass
            assert any(looks) is hangs
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # with the child that some have
