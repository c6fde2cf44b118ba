"""The launcher's side of a device: what Ctrl-C finds whenever it comes."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from racegate.interpose.forkserver import pipe_ends
from racegate.interpose.outcome import Plan
from racegate.targets.common.server import ForkServer
from racegate.targets.program.launch import DeviceServer, Program


@contextmanager
def interrupted_device(run: subprocess.Popen[bytes]) -> Iterator[DeviceServer]:
    """A device that is interrupted between the fork of a run and the answer that says which."""
    pipes, (jobs, told) = pipe_ends()

    def serve() -> None:
        os.read(jobs, 1 << 16)
        os.kill(os.getpid(), signal.SIGINT)
        os.write(told, struct.pack("<q", run.pid))
        os.write(told, struct.pack("<q", run.wait()))

    server = threading.Thread(target=serve)
    server.start()
    yield DeviceServer(ForkServer(pipes, what="the device"))
    server.join()
    pipes.end_jobs()
    pipes.close()
    for end in (jobs, told):
        os.close(end)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A shell starts what runs in its background with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_a_run_that_has_just_begun_is_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as run:
        try:
            with interrupted_device(run) as device, pytest.raises(KeyboardInterrupt):
                device.run(Program(("endless.py",)), Plan(), is_quiet=True)
            assert run.returncode == -signal.SIGKILL
        finally:
            run.kill()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
