"""The engine's process, which is started as
`python -m racegate.targets.sglang.inside.serve FOLDER MODEL WITHOUT JOBS ANSWERS`.

Runs in SGLang's environment with the virtual CUDA runtime preloaded. The scheduler is made once;
each task runs in a forked process.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from contextlib import ExitStack, nullcontext
from functools import partial
from pathlib import Path

import msgspec
import torch

from racegate.interpose.child import Child
from racegate.interpose.device.queue import Queue
from racegate.interpose.forkserver import JobServer
from racegate.interpose.kernels.kept.memo import Memo
from racegate.interpose.other_sources import ask_of_texts
from racegate.interpose.program.huge_pages import gather
from racegate.interpose.program.install import enter, watching
from racegate.interpose.program.leftovers import ending_here
from racegate.interpose.program.timeouts import write_stacks_on_signal
from racegate.order.ranges import Ranges
from racegate.targets.common.inside.listener import EngineListener
from racegate.targets.common.inside.probing import ProbeTally, probe_sources
from racegate.targets.common.inside.serve import (
    Failure,
    Lessons,
    is_own,
    keep_effects,
    observations,
    serve,
    serve_each,
)
from racegate.targets.common.inside.session import EngineSession
from racegate.targets.common.inside.sources import LineTracer, edit_source, read_texts
from racegate.targets.common.wire import ReleaseRun, Task
from racegate.targets.sglang.inside import standins
from racegate.targets.sglang.inside.engine import Driver, start
from racegate.targets.sglang.inside.repairs import switch_off
from racegate.targets.sglang.wire import ModelKind, Repair

_PACKAGE = "sglang"


class Host:
    """A started scheduler, and the runs that it is forked for."""

    def __init__(
        self, library: Path, folder: Path, model: ModelKind, without: tuple[Repair, ...]
    ) -> None:
        self._texts = read_texts(folder)  # before anything of the engine is imported
        self._listener = EngineListener(
            tensor_of=lambda address: self._child.session.allocation_sites.bounds(address)
        )
        self._memo = Memo()
        self._child = Child(library, listener=self._listener, memo=self._memo)
        self._child.session.begin(Queue(), is_recording=False)
        self._is_started = False
        enter(self._child.installed, self._child.refuse)
        standins.prepare(self._refuse, self._listener)
        standins.fit_engine()
        gc.freeze()  # what was imported stays: the engine's own collections need not look at it
        scheduler = start(folder, model=model)
        standins.fit_kernels()
        switch_off(scheduler, without)
        self._driver = Driver(scheduler, EngineSession(self._child.session, self._listener))
        self._lessons = Lessons(self._child.installed, self._memo, folder, (model, *without))
        self._is_started = True

    @property
    def memory(self) -> Ranges:
        """All that the device reaches."""
        return tuple((span.base, span.end) for span in self._child.session.spans)

    def _refuse(self, name: str) -> None:
        """What was called is not installed: a run ends with its name, a start fails with it."""
        if self._is_started:
            self._child.refuse(name)

    def run(self, task: Task) -> None:
        """In the forked process."""
        torch.cuda._is_in_bad_fork = lambda: False  # the device is memory: it may be forked
        driver = self._driver
        result = Path(task.result)
        write_stacks_on_signal(result.parent)
        self._child.arm(task.plan, result)
        self._listener.begin()
        tracer = LineTracer(_PACKAGE)
        keep_effects(self._memo, task, tracer)
        if task.plan.is_recording:
            self._child.installed.library.watch_pages()
        if self._texts:
            ask_of_texts(self._child.session, self._child.places, self._child.finish)
        delivered: dict[str, tuple[int, ...]] = {}
        traced = tracer.tracing() if task.sources.traces else nullcontext()
        probed = ProbeTally()
        with Failure() as failure, traced, ExitStack() as watched:
            if task.sources.edit is not None:
                edit_source(task.sources.edit, self._memo)
            probe_sources(task.sources.probes, probed)
            watched.enter_context(watching(self._child.installed))
            delivered = driver.run(task.scenario)
        self._child.finish(failure.ending, int(bool(failure.message)), failure.message)
        driver.watch.read()
        found = msgspec.json.decode(result.read_bytes(), type=ReleaseRun)
        truth = None if found.realised or failure.message else driver.truth()
        told = msgspec.structs.replace(
            found,
            observations=observations(driver.watch.seen),
            inner=() if found.realised else observations(driver.watch.inner),
            steps=driver.watch.step,
            delivered=delivered,
            untrue=() if truth is None else tuple(truth.untrue),
            compared={} if truth is None else dict(truth.compared),
            counters=dict(driver.watch.counters) | ({} if truth is None else truth.counters),
            cpu_s=round(time.process_time(), 3),
            lines=tracer.lines(),
            alike=probed.alike(),
            gaps=self._listener.told_gaps(),
        )
        result.write_bytes(msgspec.json.encode(told))
        if is_own(task):
            self._lessons.teach()

    def learn(self) -> None:
        """In the process that forks: what the last run has found out."""
        self._lessons.learn()

    def part(self, folder: Path) -> None:
        """In a process forked from it that serves tasks too. folder: for its own files"""
        self._lessons.part(folder)


def main() -> None:
    """Makes the scheduler and serves tasks until there are no more."""
    library = Path(os.environ.pop("LD_PRELOAD").partition(":")[0])
    folder, model, without, *ends = sys.argv[1:]
    servers = JobServer.of_arguments(ends, Task)
    os.dup2(2, 1)
    repairs = tuple(Repair(name) for name in without.split(",") if name)
    host = Host(library, Path(folder), ModelKind(model), repairs)
    gc.collect()
    gc.freeze()
    gather(but=host.memory)
    with ending_here():  # to take an engine apart takes seconds
        serve_each(host, servers, Path(folder), partial(serve, host))


if __name__ == "__main__":
    main()
