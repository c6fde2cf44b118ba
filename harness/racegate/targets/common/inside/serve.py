"""The process of an engine: one that has started is forked for each task."""

from __future__ import annotations

import hashlib
import signal
import traceback
from collections.abc import Sequence
from functools import partial
from types import TracebackType
from typing import Protocol

import msgspec

from racegate.interpose.forkserver import JobServer
from racegate.interpose.outcome import Ending, Observation
from racegate.interpose.program.leftovers import ending_here
from racegate.targets.common.inside.prefix_server import PrefixServer
from racegate.targets.common.inside.watch import Seen
from racegate.targets.common.wire import Task


class NotTaken(Exception):
    """The release says that it cannot do what a request asks for: nothing is known of it."""


class Failure:
    """A context: the engine's own error is a result, its traceback goes to standard error."""

    def __init__(self) -> None:
        self.message = ""
        self.ending = Ending.FINISHED

    def __enter__(self) -> Failure:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        traceback.print_exception(error)
        is_refused = isinstance(error, NotTaken)
        self.ending = Ending.NOT_MODELLED if is_refused else Ending.FAILED
        self.message = str(error) if is_refused else f"{type(error).__name__}: {error}"
        return True


def observations(seen: Sequence[Seen]) -> tuple[Observation, ...]:
    """What was seen at boundaries, in order."""
    found = []
    for step, name, values in seen:
        text = msgspec.json.encode(values)
        digest = hashlib.sha256(text).hexdigest()[:16]
        found.append(Observation(f"step {step} {name}", digest, text.decode()))
    return tuple(found)


class StartedEngine(Protocol):
    """A started engine."""

    def run(self, task: Task) -> None:
        """In the forked process."""
        ...

    def learn(self) -> None:
        """In the process that forks, behind each run: what the next one need not do again."""
        ...


def serve(
    host: StartedEngine, server: JobServer[Task], prefix_server: PrefixServer | None = None
) -> None:
    """One forked process per task. prefix_server: what tasks are forked from that have a turn"""
    server.tell_started()
    while (task := server.peek()) is not None:
        if (
            prefix_server is not None
            and task.turn
            and (pid := prefix_server.fork(task)) is not None
        ):
            server.lend(pid, partial(_code_of, prefix_server), host.learn)
        elif server.fork(host.learn) is not None:
            with ending_here():
                host.run(task)
    if prefix_server is not None:
        prefix_server.close()


def _code_of(prefix_server: PrefixServer) -> int:
    """Of a task's process; one of which nobody can say how it ended counts as killed."""
    code = prefix_server.answer()
    return -signal.SIGKILL if code is None else code
