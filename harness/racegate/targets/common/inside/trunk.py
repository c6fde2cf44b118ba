"""Runs that hold something later have their beginning in common: one process runs it, without
holds, up to a turn of the engine's loop, and is forked there for each of them. Those that hold the
same operation and land it in different gaps are one run until the first of these: it holds the
operation as long as it can, and is forked at each gap for the landing there.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from racegate.interpose.errors import ExitCode
from racegate.interpose.outcome import ANSWER
from racegate.interpose.program.leftovers import fork
from racegate.targets.common.wire import NOTHING_HELD, Task


class Trunk:
    """The process in which the beginning was run, as the one that serves tasks knows it.

    learn: called in that process behind each task: what the next one need not do again
    """

    def __init__(
        self, run: Callable[[Task, Pause], None], learn: Callable[[], None] = lambda: None
    ) -> None:
        self._run = run
        self._learn = learn
        self._first: Task | None = None
        self._turn = 0
        self._pid = 0
        self._jobs = self._answers = -1

    def fork(self, task: Task) -> int | None:
        """The number of the task's process, forked before its turn; None if there is none."""
        first = self._first
        is_other = first is None or (task.scenario, task.course) != (first.scenario, first.course)
        if is_other or task.turn < self._turn:
            self.close()
            self._open(task)
        self._turn = task.turn
        with suppress(BrokenPipeError):
            os.write(self._jobs, msgspec.json.encode(task) + b"\n")
        return self.answer()

    def answer(self) -> int | None:
        """What the process says next: a number or an exit code; None if it has ended."""
        data = os.read(self._answers, ANSWER.size)
        if not data:
            self.close()
            return None
        return int(ANSWER.unpack(data)[0])

    def close(self) -> None:
        """The process ends."""
        if self._first is None:
            return
        os.close(self._jobs)
        os.waitpid(self._pid, 0)
        os.close(self._answers)
        self._first = None

    def _open(self, task: Task) -> None:
        job_end, jobs = os.pipe()
        answers, answer_end = os.pipe()
        self._pid = fork()
        if self._pid == 0:
            os.close(jobs)
            os.close(answers)
            pause = Pause(job_end, answer_end, self._learn)
            self._run(msgspec.structs.replace(task, plan=NOTHING_HELD), pause)
            os._exit(ExitCode.CLEAN)
        os.close(job_end)
        os.close(answer_end)
        self._first, self._jobs, self._answers = task, jobs, answers


class Pause:
    """In that process: it stands before a turn as long as tasks for the turn come, and ends where
    there are no more.
    """

    def __init__(self, jobs: int, answers: int, learn: Callable[[], None]) -> None:
        self._jobs = os.fdopen(jobs, "rb")
        self._answers = answers
        self._learn = learn
        self._next: Task | None = None
        self._told_s = 0.0

    def before(self, turn: int) -> tuple[Task, float] | None:
        """In a process forked for a task: the task, and the CPU time spent on its beginning since
        the last one was forked. None where the run goes on to the next turn.
        """
        while True:
            task = self._next or self._read()
            if task.turn > turn:
                self._next = task
                return None
            self._next = None
            spent_s = time.process_time() - self._told_s
            self._told_s += spent_s
            pid = fork()
            if pid == 0:
                self._jobs.close()
                os.close(self._answers)
                return task, spent_s
            os.write(self._answers, ANSWER.pack(pid))
            _, status = os.waitpid(pid, 0)
            self._learn()
            os.write(self._answers, ANSWER.pack(os.waitstatus_to_exitcode(status)))

    def _read(self) -> Task:
        line = self._jobs.readline()
        if not line:
            os._exit(ExitCode.CLEAN)
        return msgspec.json.decode(line, type=Task)


class Landings:
    """Those of one run. result: where its own is written; the n-th landing's has `.n` behind it

    land: called in a forked process, with the access to land before and where its result goes
    """

    def __init__(self, result: Path, land: Callable[[str, Path], None]) -> None:
        self._result = result
        self._land = land
        self._count = 0

    def at(self, label: str) -> None:
        """The run is about to come to a gap. Returns in the forked process and, when that has
        ended, in this one. What did not end well has no result, and is run by itself if it is
        asked for; so is what is not forked because other threads would not be there.
        """
        if threading.active_count() > 1:
            return
        self._count += 1
        result = self._result.with_name(f"{self._result.name}.{self._count}")
        pid = fork()
        if pid == 0:
            self._land(label, result)
            return
        _, status = os.waitpid(pid, 0)
        if status:
            result.unlink(missing_ok=True)
