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
from pathlib import Path

import msgspec

from racegate.interpose.errors import ExitCode
from racegate.interpose.forkserver import JobClient, JobServer, ServerEndedError, pipe_ends
from racegate.interpose.program.leftovers import ending_here, fork
from racegate.targets.common.wire import NOTHING_HELD, Task


class PrefixServer:
    """The process in which the beginning was run, as the one that serves tasks knows it: a fork
    server of its own, which stands before a turn.

    learn: called in that process behind each task: what the next one need not do again
    leave: called in that process first: what is not its own, as the pipes of who serves tasks
    """

    def __init__(
        self,
        run: Callable[[Task, ForkPoint], None],
        learn: Callable[[], None] = lambda: None,
        leave: Callable[[], None] = lambda: None,
    ) -> None:
        self._run = run
        self._learn = learn
        self._leave = leave
        self._first: Task | None = None
        self._turn = 0
        self._pid = 0
        self._pipes = JobClient(-1, -1)

    def fork(self, task: Task) -> int | None:
        """The number of the task's process, forked before its turn; None if there is none."""
        first = self._first
        is_other = first is None or (task.scenario, task.run_mode) != (
            first.scenario,
            first.run_mode,
        )
        if is_other or task.turn < self._turn:
            self.close()
            self._open(task)
        self._turn = task.turn
        try:
            return self._pipes.begin(task)
        except ServerEndedError:
            self.close()
            return None

    def answer(self) -> int | None:
        """The exit code of the task's process; None if the beginning's has ended."""
        try:
            return self._pipes.read()
        except ServerEndedError:
            self.close()
            return None

    def close(self) -> None:
        """The process ends."""
        if self._first is None:
            return
        self._pipes.end_jobs()
        os.waitpid(self._pid, 0)
        self._pipes.close()
        self._first = None

    def _open(self, task: Task) -> None:
        self._first = task
        self._pipes, ends = pipe_ends()
        self._pid = fork()
        if self._pid == 0:
            self._leave()
            self._pipes.end_jobs()
            self._pipes.close()
            fork_point = ForkPoint(JobServer(*ends, Task), self._learn)
            with ending_here():
                self._run(msgspec.structs.replace(task, plan=NOTHING_HELD), fork_point)
        for end in ends:
            os.close(end)


class ForkPoint:
    """In that process: it stands before a turn as long as tasks for the turn come, and ends where
    there are no more.
    """

    def __init__(self, server: JobServer[Task], learn: Callable[[], None]) -> None:
        self._server = server
        self._learn = learn
        self._told_s = 0.0

    def before(self, turn: int) -> tuple[Task, float] | None:
        """In a process forked for a task: the task, and the CPU time spent on its beginning since
        the last one was forked. None where the run goes on to the next turn.
        """
        while (task := self._server.peek()) is not None:
            if task.turn > turn:
                return None
            spent_s = time.process_time() - self._told_s
            self._told_s += spent_s
            if self._server.fork(self._learn) is not None:
                return task, spent_s
        os._exit(ExitCode.CLEAN)


class ForkedLandings:
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
