"""The process of an engine: one that has started is forked for each task."""

from __future__ import annotations

import hashlib
import importlib
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Protocol

import msgspec

from racegate.interpose.forkserver import JobServer
from racegate.interpose.kernels.kept.memo import LineNotes, Memo
from racegate.interpose.kernels.operators import meet, met
from racegate.interpose.outcome import Ending, Observation
from racegate.interpose.program.leftovers import ending_here, fork
from racegate.targets.common.inside.prefix_server import PrefixServer
from racegate.targets.common.inside.triton import KeptEffects
from racegate.targets.common.inside.watch import Seen
from racegate.targets.common.wire import Task

LEARNT = "learnt"


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


def keep_effects(memo: Memo, task: Task, tracer: LineNotes) -> None:
    """What kernels do in a run that begins is kept, if nothing is held: with the lines that tracer
    notes of them, where the task asks for lines.
    """
    if task.plan.holds:
        memo.close()
    else:
        memo.keep(tracer if task.sources.traces else None)


def is_own(task: Task) -> bool:
    """Whether a run is of the engine's own sources, and of nothing beside them."""
    return task.sources.edit is None and not task.sources.probes


class RunCache(msgspec.Struct, frozen=True, array_like=True):
    """What a run has found out: shapes of results, operators that it met, effects of kernels and
    modules that it imported. Empty: nothing
    """

    shapes: bytes
    operators: list[str] = []
    effects: bytes = b""
    modules: list[str] = []


class LearningDevice(Protocol):
    """A device that finds out the shapes of results while it runs."""

    def dump_shapes(self) -> bytes:
        """Those of this run."""
        ...

    def load_shapes(self, data: bytes) -> None:
        """Those of another one."""
        ...


class Lessons:
    """What runs have found out, so that those behind them need not do so again: made in the forked
    process, taken in the one that forks. folder: of the engine; settings: of its cell
    """

    def __init__(
        self, device: LearningDevice, memo: Memo, folder: Path, settings: Sequence[str]
    ) -> None:
        self._device = device
        self._memo = memo
        self._learnt = folder / LEARNT
        self._modules = frozenset(sys.modules)
        self._met = set(met())
        self._kept = KeptEffects(memo, settings)
        self._kept.load()

    def part(self, folder: Path) -> None:
        """In a process forked from the engine's that forks for runs too. folder: its own"""
        self._learnt = folder / LEARNT

    def teach(self) -> None:
        """Kernels, operators and imports of runs in which nothing is held: they make all of them.
        The results of operators that run later are those of runs under holds.
        """
        shapes = self._device.dump_shapes()
        lesson = RunCache(shapes)
        if self._memo.is_open:
            operators = sorted(set(met()) - self._met)
            modules = sorted(sys.modules.keys() - self._modules)
            lesson = RunCache(shapes, operators, self._memo.dump(), modules)
        if shapes or self._memo.is_open:
            whole = self._learnt.with_suffix(".whole")  # a run may be killed while it writes
            whole.write_bytes(msgspec.msgpack.encode(lesson))
            whole.replace(self._learnt)

    def learn(self, *, is_last: bool = True) -> None:
        """Of the last run that has taught. is_last: no other process is to learn it"""
        if not self._learnt.exists():
            return
        lesson = msgspec.msgpack.decode(self._learnt.read_bytes(), type=RunCache)
        if is_last:
            self._learnt.unlink()
            if lesson.effects:
                self._kept.share(lesson.effects)
        self._device.load_shapes(lesson.shapes)
        meet(lesson.operators)
        self._met |= set(lesson.operators)
        for name in lesson.modules:
            with suppress(ImportError):  # some are made by others, and have no file
                importlib.import_module(name)
        if lesson.effects:
            self._memo.load(lesson.effects)
            self._modules = frozenset(sys.modules)


class StartedEngine(Protocol):
    """A started engine."""

    def run(self, task: Task) -> None:
        """In the forked process."""
        ...

    def learn(self) -> None:
        """In the process that forks, behind each run: what the next one need not do again."""
        ...

    def part(self, folder: Path) -> None:
        """In a process forked from it that serves tasks too. folder: for its own files"""
        ...


def serve_each(
    host: StartedEngine,
    servers: Sequence[JobServer[Task]],
    folder: Path,
    serve: Callable[[JobServer[Task]], None],
) -> None:
    """Serves the tasks of the first server here, and those of each other one in a process forked
    for it. folder: of the engine; serve: until there are no more tasks
    """
    first, *others = servers
    siblings = []
    for number, server in enumerate(others, 1):
        if (pid := fork()) == 0:
            for other in servers:
                if other is not server:
                    other.close()
            own = folder / f"sibling-{number}"
            own.mkdir()
            host.part(own)
            serve(server)
            return
        siblings.append(pid)
    for server in others:
        server.close()
    serve(first)
    for pid in siblings:
        os.waitpid(pid, 0)


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
