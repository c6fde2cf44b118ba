"""A fork server: a process that has done what all jobs need, and is forked once for each of them.

Jobs come over one pipe as lines of JSON. Over another the server answers 0 when it has started,
and for each job the number of its process and then its exit code. Standard library and msgspec
alone, so that every environment can import both ends.
"""

from __future__ import annotations

import os
import select
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Generic, TypeVar

import msgspec

from racegate.interpose.program.leftovers import fork, live_with_client

_NUMBER = struct.Struct("<q")
Job = TypeVar("Job", bound=msgspec.Struct)


class ServerEndedError(Exception):
    """The server has ended, or never started: it says no more."""


class JobClient:
    """The end that hands out jobs. jobs: the pipe that is written; answers: the one that is read"""

    def __init__(self, jobs: int, answers: int) -> None:
        self._jobs = jobs
        self._answers = answers

    def begin(self, job: msgspec.Struct) -> int:
        """Hands out a job; returns the number of its process. Raises ServerEndedError."""
        try:
            os.write(self._jobs, msgspec.json.encode(job) + b"\n")
        except BrokenPipeError:
            raise ServerEndedError from None
        return self.read()

    def read(self) -> int:
        """What the server says next: a process, or its exit code. Raises ServerEndedError."""
        answer = os.read(self._answers, _NUMBER.size)
        if len(answer) < _NUMBER.size:
            raise ServerEndedError
        return int(_NUMBER.unpack(answer)[0])

    def wait(self, within_s: float | None) -> bool:
        """Whether the server has said something, or has ended, within so many seconds."""
        ready, _, _ = select.select([self._answers], [], [], within_s)
        return bool(ready)

    def end_jobs(self) -> None:
        """No more jobs: the server ends behind the present one."""
        os.close(self._jobs)

    def close(self) -> None:
        """After the server has ended."""
        os.close(self._answers)


class JobServer(Generic[Job]):
    """The serving end. kind: of the jobs

    In a process that it forked for a job, both pipes are closed.
    """

    def __init__(self, jobs: int, answers: int, kind: type[Job]) -> None:
        self._jobs = os.fdopen(jobs, "rb")
        self._answers = answers
        self._kind = kind
        self._next: Job | None = None

    @classmethod
    def of_arguments(cls, ends: Sequence[str], kind: type[Job]) -> list[JobServer[Job]]:
        """In a process that was started with the numbers of its pipes, two for each server that it
        is to be: it lives no longer than its client, and what it starts does not have the pipes.
        """
        numbers = list(map(int, ends))
        live_with_client(numbers[0])
        for end in numbers:
            os.set_inheritable(end, False)
        return [cls(*pair, kind) for pair in zip(numbers[::2], numbers[1::2], strict=True)]

    def tell_started(self) -> None:
        """The client may send jobs."""
        self._tell(0)

    def peek(self) -> Job | None:
        """The next job, which stays the next one; None if there are no more."""
        if self._next is None and (line := self._jobs.readline()):
            self._next = msgspec.json.decode(line, type=self._kind)
        return self._next

    def fork(self, behind: Callable[[], None] = lambda: None) -> Job | None:
        """Forks a process for the next job. Returns the job in that process, and None in this one
        when that has ended. behind: called here before the client is told so
        """
        job = self._next
        pid = fork()
        if pid == 0:
            self.close()
            return job
        self.lend(pid, lambda: os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), behind)
        return None

    def lend(
        self, pid: int, wait: Callable[[], int], behind: Callable[[], None] = lambda: None
    ) -> None:
        """The next job is done by another process. wait: until that ends; returns its exit code"""
        self._next = None
        self._tell(pid)
        code = wait()
        behind()
        self._tell(code)

    def close(self) -> None:
        """Both pipes."""
        self._jobs.close()
        os.close(self._answers)

    def _tell(self, number: int) -> None:
        with suppress(BrokenPipeError):  # the client has gone, and this process ends with it
            os.write(self._answers, _NUMBER.pack(number))


def pipe_ends() -> tuple[JobClient, tuple[int, int]]:
    """A client's ends of two new pipes, and the server's: of jobs, of answers."""
    job_end, jobs = os.pipe()
    answers, answer_end = os.pipe()
    return JobClient(jobs, answers), (job_end, answer_end)
