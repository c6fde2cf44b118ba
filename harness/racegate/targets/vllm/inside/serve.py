"""The engine's process, which is started as
`python -m racegate.targets.vllm.inside.serve FOLDER CELL`, with the ends of two pipes behind it.
The cell is what is to be started, as JSON.

Runs in vLLM's environment with the virtual CUDA runtime preloaded. The engine starts once; each
task runs in a forked process, so that a search over many schedules pays for one start.
"""

from __future__ import annotations

import gc
import hashlib
import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from functools import partial
from pathlib import Path

import msgspec
import torch

from racegate.interpose.child import Child
from racegate.interpose.device.queue import Queue
from racegate.interpose.errors import ExitCode
from racegate.interpose.forkserver import JobServer
from racegate.interpose.kernels.kept.memo import Memo
from racegate.interpose.other_sources import ask_of_texts
from racegate.interpose.outcome import DEVICE, DeviceKind
from racegate.interpose.program.huge_pages import gather
from racegate.interpose.program.install import enter, watching
from racegate.interpose.program.leftovers import ending_here
from racegate.interpose.program.timeouts import write_stacks_on_signal
from racegate.order.ranges import Ranges
from racegate.targets.common.inside.convergence import Converged, Heard, Memory
from racegate.targets.common.inside.listener import EngineListener
from racegate.targets.common.inside.prefix_server import ForkedLandings, ForkPoint, PrefixServer
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
from racegate.targets.common.wire import FAILED, ReleaseRun, RunMode, Task
from racegate.targets.vllm.cell import Cell
from racegate.targets.vllm.inside import plants, standins
from racegate.targets.vllm.inside.engine import Driver, start
from racegate.targets.vllm.inside.scripted.model import vocab_of
from racegate.targets.vllm.inside.scripted.started import check_started
from racegate.targets.vllm.inside.watch import find_wrong
from racegate.targets.vllm.wire import PositionMode

_OWN = Path(__file__).parents[1]
GUIDE = "guide"  # a file for the states of a baseline run
COMPARISONS_MAX = 2  # turns before which a run is compared: who notes what the host hears is slower


class Host:
    """A started engine, and the runs that it is forked for."""

    def __init__(
        self,
        library: Path,
        folder: Path,
        asked: Cell,
        kind: DeviceKind,
    ) -> None:
        self._texts = read_texts(folder)  # before anything of the engine is imported
        self._memo = Memo()
        self._listener = EngineListener(
            own=(_OWN,),
            stream_of=lambda: torch._C._cuda_getCurrentRawStream(0),
            tensor_of=lambda address: self._session.allocation_sites.bounds(address),
        )
        self._child = Child(
            library,
            kind=kind,
            listener=self._listener,
            name_buffer=self._listener.buffer_at,
            memo=self._memo,
        )
        self._session = self._child.session
        self._session.begin(Queue(), is_recording=False)
        enter(self._child.installed, self._child.refuse)
        capture_of = self._child.installed.library.capture_of
        device = EngineSession(self._session, self._listener, kind, capture_of)
        self._kept = standins.prepare(device, asked)
        standins.use_cuda_platform()
        standins.fit_engine(vocab_of(asked.vocabulary))
        if asked.positions is PositionMode.MROPE:
            standins.keep_dimensions()
        gc.freeze()  # what was imported stays: the engine's own collections need not look at it
        engine = start(folder, asked)
        check_started(engine, asked)
        standins.fit_started(engine)
        self._driver = Driver(engine, device, asked)
        self._is_virtual = kind is DeviceKind.VIRTUAL
        self._memory = Memory(self._session.spans if self._is_virtual else ())
        self._baseline = folder / GUIDE
        self._states: tuple[bytes, ...] = ()  # of the baseline run, before each turn
        self._lessons = Lessons(self._child.installed, self._memo, folder, asked.settings)

    @property
    def memory(self) -> Ranges:
        """All that the device reaches."""
        return tuple((span.base, span.end) for span in self._session.spans)

    def run(self, task: Task, fork: ForkPoint | None = None) -> None:
        """In the forked process; on a GPU, which cannot be forked, in the only one.

        fork: of a run that is the beginning of others; in those that are forked from it, the task
        is theirs
        """
        torch.cuda._is_in_bad_fork = lambda: False  # the device is memory: it may be forked
        driver = self._driver
        self._beginning_s = 0.0
        self._take(task)
        driver.watch.note_holds(task.plan.holds)
        is_heard = task.run_mode in (RunMode.BASELINE, RunMode.CONVERGING)
        self._listener.begin(heard=Heard(self._session) if is_heard else None)
        tracer = LineTracer(plants.PACKAGE.partition(".")[0])
        keep_effects(self._memo, task, tracer)
        if task.plan.is_recording or is_heard:
            self._child.installed.library.watch_pages()
        if self._texts:
            ask_of_texts(self._session, self._child.places, self._child.finish)
        delivered: dict[str, tuple[int, ...]] = {}
        has_converged = False
        traced = tracer.tracing() if task.sources.traces else nullcontext()
        probed = ProbeTally()
        with Failure() as failure, traced, ExitStack() as watched:
            if task.sources.edit is not None:
                edit_source(task.sources.edit, self._memo)
            probe_sources(task.sources.probes, probed)
            watched.enter_context(watching(self._child.installed))
            on_turn = self._before_turns(fork, watched, task.run_mode)
            try:
                delivered = driver.run(
                    task.scenario,
                    plant=task.plant,
                    spoils=task.spoils,
                    plain=task.plain,
                    is_plain=task.run_mode is RunMode.PLAIN,
                    on_turn=on_turn,
                )
            except Converged:
                has_converged = True
        self._child.finish(failure.ending, int(bool(failure.message)), failure.message)
        self._tell(delivered, tracer.lines(), probed.alike(), has_converged=has_converged)
        if self._child.installed.computes and is_own(task):
            self._lessons.teach()

    def _take(self, task: Task) -> None:
        """This process is the task's."""
        self._result = Path(task.result)
        write_stacks_on_signal(self._result.parent)
        self._child.arm(task.plan, self._result)
        landings = ForkedLandings(self._result, self._land)
        self._listener.tell_gaps(landings.at if task.lands else None)

    def _land(self, label: str, result: Path) -> None:
        """This process was forked for the run that goes on from here with a landing."""
        self._listener.tell_gaps(None)
        self._session.queue.land_at(label)
        self._result, self._beginning_s = result, 0.0
        self._child.go_on(result)

    def _before_turns(
        self, fork: ForkPoint | None, watched: ExitStack, run_mode: RunMode
    ) -> Callable[[int], None]:
        """What is done before each turn of the engine's loop: where it forks, a task may come that
        goes on from there; what holds nothing any more is compared with the baseline run, if there
        is one, and then not watched.
        """
        is_beginning = fork is not None
        is_virtual = self._is_virtual
        joins = COMPARISONS_MAX if run_mode is RunMode.CONVERGING else 0
        states: list[bytes] = []

        def before(turn: int) -> None:
            nonlocal is_beginning, joins
            if fork is not None and is_beginning and (taken := fork.before(turn)) is not None:
                is_beginning = False
                task, self._beginning_s = taken
                self._take(task)
            if run_mode is RunMode.BASELINE:
                states.append(self._state())
                self._baseline.write_bytes(msgspec.msgpack.encode(states))
            elif is_virtual and self._session.holds_nothing:
                is_same = joins and self._states[turn : turn + 1] == (self._state(),)
                if is_same and not self._session.touches.raw_reads:
                    raise Converged
                joins = max(0, joins - 1)
                if not joins:
                    self._listener.stop_hearing()
                    watched.close()

        return before

    def _state(self) -> bytes:
        """What the rest of the run depends on, where nothing is held."""
        session, watch = self._session, self._driver.watch
        session.drain()
        watch.read()
        heard = self._listener.digest
        known = (watch.step, watch.seen, watch.accepted, dict(watch.counters), heard)
        found = hashlib.blake2b(msgspec.msgpack.encode(known), digest_size=16)
        for span in session.spans:
            session.guards.lift(span.base, span.end)
        contents = self._memory.digest(session.spans)
        session.guards.settle()
        return found.digest() + contents

    def _tell(
        self,
        delivered: dict[str, tuple[int, ...]],
        lines: dict[str, tuple[int, ...]],
        alike: tuple[int, ...],
        *,
        has_converged: bool,
    ) -> None:
        """Adds to the outcome what was seen of the engine."""
        listener, driver, result = self._listener, self._driver, self._result
        driver.watch.read()
        found = msgspec.json.decode(result.read_bytes(), type=ReleaseRun)
        turns = listener.turns
        is_free = not found.realised
        truth = driver.truth() if is_free else None
        firsts = {first for race in found.findings for first, _ in race.pairs}
        told = msgspec.structs.replace(
            found,
            observations=observations(driver.watch.seen),
            inner=observations(driver.watch.inner) if is_free else (),
            untrue=() if truth is None else tuple(truth.untrue),
            compared={} if truth is None else dict(truth.compared),
            steps=driver.watch.step,
            delivered=delivered,
            plain=driver.plain(),
            wrong=tuple(find_wrong(driver.watch)),
            counters=driver.counters(),
            gaps=listener.told_gaps(),
            turns={first: turns[first] for first in firsts if first in turns},
            has_converged=has_converged,
            cpu_s=round(time.process_time() + self._beginning_s, 3),
            lines=lines,
            alike=alike,
        )
        result.write_bytes(msgspec.json.encode(told))

    def rehearse(self, task: Task) -> None:
        """The run once before, unwatched: on a GPU to compile and load a kernel may wait for the
        device, and so for a latch.
        """
        self._driver.run(task.scenario)

    def learn(self, *, is_last: bool = True) -> None:
        """In a process that forks: what was found out in the last run, and what was imported in it,
        so that the runs behind it need not do so again; what the baseline run was.

        is_last: no other process is to learn it
        """
        if self._baseline.exists():
            states = self._baseline.read_bytes()
            self._states = msgspec.msgpack.decode(states, type=tuple[bytes, ...])
            self._baseline.unlink()
        self._lessons.learn(is_last=is_last)

    def part(self, folder: Path) -> None:
        """In a process forked from it that serves tasks too. folder: for its own files"""
        self._baseline = folder / GUIDE
        self._lessons.part(folder)


def serve_one(host: Host, server: JobServer[Task]) -> None:
    """One task, in this process: a GPU that was set up does not survive a fork. Answers as `serve`
    does.
    """
    server.tell_started()
    if (task := server.peek()) is not None:
        server.lend(os.getpid(), partial(_run_here, host, task))


def _run_here(host: Host, task: Task) -> int:
    host.rehearse(task)
    host.run(task)
    return ExitCode.CLEAN


def main() -> None:
    """Starts the engine and serves tasks until there are no more."""
    library = Path(os.environ.pop("LD_PRELOAD").partition(":")[0])
    kind = DeviceKind(os.environ.pop(DEVICE))
    folder, cell, *ends = sys.argv[1:]
    servers = JobServer.of_arguments(ends, Task)
    os.dup2(2, 1)
    with Failure() as failure:
        asked = msgspec.json.decode(cell, type=Cell)
        host = Host(library, Path(folder), asked, kind)
    if failure.message:
        Path(folder, FAILED).write_text(failure.message)
        sys.exit(1)
    gc.collect()
    gc.freeze()
    if kind is DeviceKind.VIRTUAL:
        gather(but=host.memory)
        learn = partial(host.learn, is_last=False)

        def serve_here(server: JobServer[Task]) -> None:
            serve(host, server, PrefixServer(host.run, learn, server.close))

        with ending_here():  # to take an engine apart takes seconds
            serve_each(host, servers, Path(folder), serve_here)
    else:
        serve_one(host, servers[0])


if __name__ == "__main__":
    main()
