"""Commands in processes that have imported everything already.

To start Python and to import what a command needs takes longer than most commands of a test. So
one server per test process imports it once, and forks for each command (`warmed_server`): that is
a process of its own, with its own arguments, folder, environment and streams. What a start costs
and imports, and what becomes of lost processes, is for tests that start Python themselves.
"""

from __future__ import annotations

import array
import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from enum import Enum
from functools import cache
from pathlib import Path
from typing import IO

from racegate.interpose.build import find_toolkit
from racegate.interpose.outcome import DeviceKind
from racegate.targets.program.launch import environment_for

SERVER = Path(__file__).with_name("warmed_server.py")
# Not under its own name: frames of that file would be taken for the program's.
START = "exec(compile(open({path!r}).read(), '<warmed>', 'exec'))"


class Warmth(Enum):
    """What a server has imported before it forks.

    COMMANDS: every command, and torch; PROGRAMS: also the process that holds a device, on the
    virtual CUDA runtime, so that the device of `racegate torch run` is forked too
    """

    COMMANDS = "commands"
    PROGRAMS = "programs"


class Server:
    """The process that forks, and the socket to it."""

    def __init__(self, warmth: Warmth) -> None:
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environment = {**os.environ}
        if warmth is Warmth.PROGRAMS:
            environment = environment_for(find_toolkit(), DeviceKind.VIRTUAL)
        start = START.format(path=str(SERVER))
        with there:
            self._process = subprocess.Popen(
                [sys.executable, "-c", start, str(there.fileno()), warmth.value],
                env=environment,
                pass_fds=[there.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        self._socket = here

    def run(
        self,
        words: tuple[str, ...],
        *,
        cwd: Path,
        env: Mapping[str, str],
        streams: tuple[int, int, int],
        timeout_s: float,
    ) -> int:
        """Exit code of `racegate WORDS`, negative for a signal. Raises subprocess.TimeoutExpired
        when it took longer, and was ended.
        """
        asked = json.dumps({"words": words, "cwd": str(cwd), "env": dict(env)})
        socket.send_fds(self._socket, [asked.encode()], list(streams))
        pid = self._answer(None)
        try:
            return self._answer(timeout_s)
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            self._answer(None)
            raise subprocess.TimeoutExpired(words, timeout_s) from None

    def close(self) -> None:
        self._socket.close()
        self._process.wait()

    def _answer(self, timeout_s: float | None) -> int:
        self._socket.settimeout(timeout_s)
        answer = array.array("q", self._socket.recv(8))
        if not answer:
            raise RuntimeError("the server of commands was lost")
        return answer[0]


@cache
def server(warmth: Warmth) -> Server:
    started = Server(warmth)
    atexit.register(started.close)
    return started


def run_command(
    *words: str,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    warmth: Warmth = Warmth.COMMANDS,
    timeout_s: float = 250,
    stdin: IO[bytes] | None = None,
) -> subprocess.CompletedProcess[str]:
    """What `subprocess.run` says of `racegate WORDS`, its output captured and its input empty where
    none is given.
    """
    with (
        Path(os.devnull).open() as nothing,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as errors,
    ):
        code = server(warmth).run(
            words,
            cwd=cwd,
            env=os.environ if env is None else env,
            streams=((stdin or nothing).fileno(), out.fileno(), errors.fileno()),
            timeout_s=timeout_s,
        )
        return subprocess.CompletedProcess(words, code, _text_of(out), _text_of(errors))


def _text_of(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()
