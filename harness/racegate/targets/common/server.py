"""Starts a fork server in a process of its own and asks it for jobs. It may have siblings, which
are forked from it when it has started: each is asked for one job at a time.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import IO, NamedTuple

import msgspec

from racegate.interpose.errors import BadInput
from racegate.interpose.forkserver import JobClient, ServerEndedError, pipe_ends
from racegate.interpose.program.timeouts import STACKS_SIGNAL, Stillness
from racegate.scenario.errors import BrokenHarnessError

START_S = 600.0
LOOK_S = 1.0  # between two looks at a process that may hang
END_S = 30.0  # for a server that has no more jobs
STACKS_S = 3.0  # for a process that is asked where it stands, and what it has found


class PrintPlace(Enum):
    """Where a job prints to: PLAIN where it would, STDERR if standard output is taken."""

    PLAIN = "plain"
    STDERR = "stderr"


class ServerStreams(NamedTuple):
    """Of a server's process. log: a file for its standard error, in the place of this process's"""

    stdin: int | IO[bytes] = subprocess.DEVNULL
    stdout: PrintPlace = PrintPlace.PLAIN
    log: Path | None = None


STREAMS = ServerStreams()


class ServerLost(BadInput):
    """A server that had started is gone; another one may be started for what is left."""


class ForkServer:
    """A fork server, as its client has it.

    what: its name in errors; failed: a file in which it says why it did not start, if it does
    """

    def __init__(self, pipes: JobClient, *, what: str, failed: Path | None = None) -> None:
        self._pipes = pipes
        self._what = what
        self._failed = failed
        self.start_s = 0.0

    def wait_until_started(self, within_s: float) -> None:
        """Raises BadInput with the reason if it cannot start, and BrokenHarnessError if it has not
        started within so many seconds.
        """
        begun = time.perf_counter()
        if not self._pipes.wait(within_s):
            raise BrokenHarnessError(
                f"{self._what} did not start within {within_s:g} s: nothing is known of what it "
                "would have run; try again when the machine is less busy"
            )
        self._read()
        self.start_s = time.perf_counter() - begun

    def run(self, job: msgspec.Struct, timeout_s: float = 0.0) -> int | None:
        """The exit code of a job's process, as `wait` returns it. Raises ServerLost."""
        return self.wait(self.begin(job), timeout_s)

    def begin(self, job: msgspec.Struct) -> int:
        """Hands out a job; the number of its process. Raises ServerLost if the server has ended."""
        try:
            return self._pipes.begin(job)
        except ServerEndedError:
            raise self._lost() from None

    def wait(self, pid: int, timeout_s: float = 0.0) -> int | None:
        """The exit code of a job's process, negative for a signal; None if it was ended because it
        took longer than `timeout_s` seconds, or, where that is 0, because it hung. It is asked for
        its stacks then.
        """
        stillness = Stillness(pid)
        while not timeout_s:
            if self._pipes.wait(LOOK_S):
                return self._read()
            if stillness.is_over():
                break
        if timeout_s and self._pipes.wait(timeout_s):
            return self._read()
        os.kill(pid, STACKS_SIGNAL)
        if self._pipes.wait(STACKS_S):
            self._read()
        else:
            self.kill(pid)
        return None

    def kill(self, pid: int) -> None:
        """Ends a job's process at once."""
        os.kill(pid, signal.SIGKILL)
        self._read()

    def _read(self) -> int:
        try:
            return self._pipes.read()
        except ServerEndedError:
            raise self._lost() from None

    def _lost(self) -> BadInput:
        if self.start_s:
            return ServerLost(f"the process of {self._what} ended; its message is above")
        said = "its message is above"
        if self._failed is not None and self._failed.exists():
            said = self._failed.read_text()
        return BadInput(f"{self._what} did not start: {said}")


@contextmanager
def open_server(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    what: str,
    failed: Path | None = None,
    stdin: int | IO[bytes] = subprocess.DEVNULL,
    stdout: PrintPlace = PrintPlace.PLAIN,
) -> Iterator[ForkServer]:
    """Starts a fork server without siblings. Arguments and errors are those of `open_servers`."""
    streams = ServerStreams(stdin, stdout)
    with open_servers(command, environment, what=what, failed=failed, streams=streams) as (server,):
        yield server


@contextmanager
def open_servers(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    what: str,
    count: int = 1,
    failed: Path | None = None,
    streams: ServerStreams = STREAMS,
) -> Iterator[Sequence[ForkServer]]:
    """Starts a fork server, waits until it and its siblings have started, and ends them with all
    that they forked.

    command: what starts it; the numbers of the pipes are added to it; count: of servers
    Raises as `ForkServer.wait_until_started` does.
    """
    made = [pipe_ends() for _ in range(count)]
    ends = [end for _, pair in made for end in pair]
    errors = None if streams.log is None else streams.log.open("wb")
    process = subprocess.Popen(
        [*command, *map(str, ends)],
        env=environment,
        pass_fds=ends,
        process_group=0,
        stdin=streams.stdin,
        stdout=sys.stderr if streams.stdout is PrintPlace.STDERR else None,
        stderr=errors,
    )
    for end in ends:
        os.close(end)
    try:
        servers = [ForkServer(pipes, what=what, failed=failed) for pipes, _ in made]
        for server in servers:
            server.wait_until_started(START_S)
        yield servers
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    finally:
        for pipes, _ in made:
            pipes.end_jobs()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for pipes, _ in made:
            pipes.close()
        if errors is not None:
            errors.close()
