"""The process that holds a device: `python -m racegate.interpose.child COPY JOBS ANSWERS`.

Started by the launcher with a CUDA runtime preloaded, the file that has a copy of standard
input (empty for none), and the numbers of two pipes. It imports torch once, and forks for each
run.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import NoReturn

import msgspec
import torch

from racegate.history.finding import Race, place_name
from racegate.interpose.compiling import compiled_regions, follow_compiler, import_compiler
from racegate.interpose.current import ProgramRun, set_run
from racegate.interpose.debugger import stops_at
from racegate.interpose.device.calls import LoggedRuntime
from racegate.interpose.device.copies import COPIES
from racegate.interpose.device.frames import is_program_file
from racegate.interpose.device.library import Library
from racegate.interpose.device.listener import Listener
from racegate.interpose.device.queue import WorkQueue
from racegate.interpose.device.session import Session
from racegate.interpose.errors import INTERRUPTED, ExitCode
from racegate.interpose.forkserver import JobServer
from racegate.interpose.gpu.forward import ForwardLibrary
from racegate.interpose.gpu.install import GpuDevice
from racegate.interpose.gpus import GPUS, VIRTUAL_GPU, GpuFacts, facts_seen
from racegate.interpose.kernels.interpreted.accesses import LaunchJudged
from racegate.interpose.kernels.interpreted.programs import LaunchConflicts
from racegate.interpose.kernels.kept.memo import Memo
from racegate.interpose.other_sources import PlaceWatch, ask_of_texts, read_instead
from racegate.interpose.outcome import DEVICE, CompileMode, DeviceKind, Ending, Job, Outcome, Plan
from racegate.interpose.program.failures import (
    code_of_exit,
    is_ours,
    missing_for,
    program_part,
    words_for,
)
from racegate.interpose.program.imports import (
    imported_from,
    run_script,
    track_allocator_settings,
)
from racegate.interpose.program.install import Installed, enter, install
from racegate.interpose.program.leftovers import (
    THREADS_LEFT,
    adopt_orphans,
    end_as_python_does,
    end_leftovers,
)
from racegate.interpose.program.names import buffer_name
from racegate.interpose.program.processes import (
    PRELOAD,
    preloaded,
    seen_of_children,
    track_processes,
)
from racegate.interpose.program.stdin import RewoundInput
from racegate.interpose.program.timeouts import write_stacks_on_signal
from racegate.interpose.ranks.group.messages import RankLink
from racegate.interpose.ranks.holds import holds_of
from racegate.interpose.ranks.leading import lead, prepare_ranks
from racegate.interpose.ranks.processes import RankSettings
from racegate.interpose.ranks.queue import RankQueue
from racegate.interpose.ranks.rank import Rank
from racegate.interpose.run_log import RunTracer, tracer_of
from racegate.order.findings import NamedConflict, races_of
from racegate.order.recorder import Conflict

RESULT_FD_MIN = 512
COMPLETE = (Ending.FINISHED, Ending.FAILED)  # the script came to its end, whatever that is
_TORN = "copies in a finding that land as a whole (a torn copy is not tried)"


class Child:
    """The device of this process, and what is found on it in one run."""

    def __init__(
        self,
        path: Path,
        *,
        kind: DeviceKind = DeviceKind.VIRTUAL,
        listener: Listener | None = None,
        name_buffer: Callable[[int], str] | None = None,
        memo: Memo | None = None,
    ) -> None:
        """path: of the preloaded library; listener, name_buffer: what an engine's process adds, and
        how it calls what lies at an address; memo: launches that need not be computed again
        """
        self.installed: Installed | GpuDevice
        if kind is DeviceKind.CUDA:
            forward = ForwardLibrary(path)
            self.session = self._session_on(forward, listener)
            self.installed = GpuDevice(forward, self.session, self.refuse)
        else:
            library = Library(path)
            self.session = self._session_on(library, listener)
            self.installed = install(library, self.session, self.refuse, memo, self._note_launch)
        self._kind = kind
        self._name_buffer = name_buffer
        self._result = Path()
        self._kept_open: int | None = None
        self._pid = 0
        self._gpu: GpuFacts | None = None
        self._log: RunTracer | None = None
        self._path = ""
        self._named: dict[int, NamedConflict] = {}
        self._in_launches = LaunchConflicts()
        self._rank: Rank | None = None
        self.places = PlaceWatch(self.session)
        self.run = ProgramRun(self.findings, self.installed.read, self.installed.declare)

    def _session_on(self, library: Library, listener: Listener | None) -> Session:
        return Session(
            LoggedRuntime(library),
            on_conflict=self._name,
            refuse_write=self._refuse_write,
            listener=listener,
        )

    def join(self, link: RankLink, gpus: int) -> None:
        """In a process of a run of ranks, which are at the other end. gpus: that it sees"""
        rank = self._rank = Rank(link, self.session, stop=self._stop, refuse=self.refuse)
        rank.connect(self.installed.calls, self.installed.library, gpus=gpus)

    def begin(self, job: Job) -> None:
        """In the forked process: this run's plan."""
        self.run = replace(self.run, suppressed=frozenset(job.suppressed))
        self.arm(job.plan, Path(job.result))
        # The program may lower the number of files that it may open; and close the first of them.
        opened = os.open(job.result, os.O_WRONLY)
        self._kept_open = fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, RESULT_FD_MIN)
        os.close(opened)
        write_stacks_on_signal(Path(job.stacks), self._stop)
        self._be_gpu(job)
        self._path = job.path
        is_virtual = self._kind is DeviceKind.VIRTUAL
        compiling = job.compiling if is_virtual else CompileMode.EAGER
        follow_compiler(self.session, compiling, self.refuse)
        # What runs behind the script is judged too: the library answers until nothing is left.
        atexit.unregister(self.installed.library.hush)
        enter(self.installed, self.refuse)
        self._gpu = facts_seen(torch.cuda.get_device_properties(0))
        if job.plan.is_recording:
            self.installed.library.watch_pages()
        if job.sources:
            read_instead(job.sources)
            ask_of_texts(self.session, self.places, self.finish)
        track_processes(self.session, self.installed.library)
        track_allocator_settings(self.refuse)

    def _be_gpu(self, job: Job) -> None:
        """What the virtual device says of itself, before anybody asks."""
        library, facts = self.installed.library, GPUS.get(job.gpu, VIRTUAL_GPU)
        if job.gpu:
            library.set_gpu(facts.name, facts.numbers)
        if memory_bytes := job.memory_bytes or facts.memory_bytes:
            library.limit_memory(memory_bytes)

    def arm(self, plan: Plan, result: Path) -> None:
        """The plan alone, for a process that entered the device before it was forked."""
        self._result = result
        self._pid = os.getpid()
        queue = self._make_queue(plan)
        self.session.begin(queue, polls_max=plan.polls, is_recording=plan.is_recording)
        self._log = tracer_of(self.session, plan)
        set_run(self.run)

    def _make_queue(self, plan: Plan) -> WorkQueue:
        if self._rank is not None:
            guards, records = self.session.guards, plan.is_recording
            return RankQueue(plan.holds, self._rank, records=records, guards=guards)
        made, settles, limit_s = self.installed.make_queue, plan.settles, plan.hold_limit_s
        told = stops_at(plan.debugger, is_program_file, self.session.own) if plan.debugger else None
        return made(plan.holds, settles=settles, limit_s=limit_s, on_landing=told)

    def go_on(self, result: Path) -> None:
        """This process was forked in the middle of a run: what comes of it is another result."""
        self._result = result
        self._pid = os.getpid()

    def findings(self) -> list[Race]:
        """All conflicts so far, in the order in which they were found."""
        self.session.drain()
        session, found = self.session, list(self._named.values())
        within, made = session.within, session.origins.made
        lanes = session.recorder.lanes
        races = races_of(found, lanes, parts=session.parts, within=within, made=made)
        return [*races, *self._in_launches.races()]

    def finish(self, ending: Ending, exit_code: int, message: str = "") -> None:
        """Writes the result; nothing after this is judged. A process that the program forked and
        that came to the script's end has nothing to say.
        """
        if os.getpid() != self._pid:
            return
        session = self.session
        if self._rank is not None:
            self._rank.end(f": {message}" if message else "", goes_on=ending in COMPLETE)
        if ending is Ending.FINISHED:
            session.drain()
            session.touches.end()
        findings = tuple(self.findings())
        if self._log is not None:
            self._log.write()
        session.queue.force_all()
        self.installed.finish()
        session.end()
        outcome = Outcome(
            ending=ending,
            exit_code=exit_code,
            message=message,
            work=session.work.own,
            work_of_children=session.work.of_children,
            events=session.recorder.events,
            findings=findings,
            observations=tuple(self.run.observations),
            not_seen=dict(session.not_seen) | seen_of_children(self.installed.library),
            positions=session.recorder.positions,
            realised=session.queue.realised,
            torch_version=str(torch.__version__),
            gpu=self._gpu,
            compiled_regions=compiled_regions(),
            imported=imported_from(self._path) if self._path else 0,
            places=self.places.seen(),
            waits=session.recorder.prices,
            kernels=self._in_launches.kernels(),
        )
        data = msgspec.json.encode(outcome)
        if self._kept_open is None:
            self._result.write_bytes(data)
            return
        with os.fdopen(self._kept_open, "wb") as file:
            file.write(data)
        if self._rank is not None and ending in COMPLETE:
            self._rank.await_dismissal()

    def _stop(self) -> NoReturn:
        """The program hangs, or its time is over: what was found until then is written."""
        if not self.session.is_over:
            self.finish(Ending.TIMED_OUT, ExitCode.BROKEN_HARNESS)
        os._exit(ExitCode.BROKEN_HARNESS)

    def refuse(self, name: str) -> None:
        """Ends the process: the program asked for something that nobody modelled."""
        frame: FrameType | None = sys._getframe()
        while frame is not None and frame.f_code.co_filename == __file__:
            frame = frame.f_back  # below the program's frames, `stack` looks no further than here
        stack = self.session.stack(frame)
        place = "".join(f"\n  {f}:{line} in {code}" for f, line, code in stack)
        self.finish(Ending.NOT_MODELLED, ExitCode.NOT_MODELLED, f"{name}{place}")
        sys.stdout.flush()
        os._exit(ExitCode.NOT_MODELLED)

    def _refuse_write(self, address: int, text: str) -> None:
        """Nobody who is modelled has written the byte."""
        with self.session.own():
            name = self._buffer(address, address + 1)
        self.refuse(f"a write to {name} that nobody reported (C code, another process): {text}")

    def _buffer(self, low: int, high: int) -> str:
        if self._name_buffer is not None:
            return self._name_buffer(low)
        return buffer_name(self.session, low, high)

    def _name(self, conflict: Conflict) -> None:
        session = self.session
        # The conflict first: whatever the program's objects answer to being looked at, it stays.
        self._named[id(conflict)] = NamedConflict(conflict, f"memory at {conflict.low:#x}")
        with session.own():
            name = self._buffer(conflict.low, conflict.low + conflict.nbytes)
        is_copy = any(a.label.startswith(COPIES) for a in (conflict.first, conflict.second))
        if is_copy and not self.installed.tears_copies:
            session.not_seen[_TORN] += 1
        site = session.allocation_sites.find(conflict.low)
        reused_at = site[2] if site is not None and site[1] >= conflict.first.index else None
        freed = session.allocation_sites.earlier(conflict.low, conflict.first.index)
        if reused_at is not None and freed and self._name_buffer is None:
            name = f"memory asked for at {place_name(freed)}, and freed"
        allocated = freed if reused_at is not None else session.origins.allocated(conflict.low)
        self._named[id(conflict)] = NamedConflict(conflict, name, reused_at, allocated)

    def _note_launch(self, launch: LaunchJudged) -> None:
        names = [self._buffer(race.low, race.high) for race in launch.races]
        # From the caller on: `stack` looks no further than this file.
        stack = self.session.stack(sys._getframe(1)) if names else ()
        self._in_launches.add(launch, stack=stack, buffers=names)


def run_program(child: Child, argv: list[str], path: str = "") -> int:
    """Runs a script, or `-m` a module, as Python would; returns its exit code. path: as of a Job"""
    try:
        run_script(argv, path)
        code, message = 0, ""
    except SystemExit as exit:
        code, message = code_of_exit(exit), ""
    except KeyboardInterrupt:
        child.finish(Ending.INTERRUPTED, INTERRUPTED)
        return INTERRUPTED
    except BaseException as error:  # noqa: BLE001  the script's own failure, told as Python tells it
        traceback.print_exception(type(error), error, program_part(error.__traceback__))
        if missing := missing_for(error):
            child.refuse(missing)
        if is_ours(error):
            child.refuse(words_for(error, "the program"))
        code, message = 1, f"{type(error).__name__}: {error}"
    if left := end_as_python_does(child.session.host_threads.ours):
        child.session.not_seen[THREADS_LEFT] += left
    child.finish(Ending.FAILED if code else Ending.FINISHED, code, message)
    return code


def leave(code: int) -> NoReturn:
    """Ends the process as Python does, but for taking all of torch apart object by object: that
    costs thirty times what a small program does.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code & 0xFF)


def run_ranks(child: Child, job: Job) -> None:
    """Runs the program as ranks, each in a process of its own, and writes what they came to."""

    def job_of(seat: RankSettings) -> Job:
        holds = holds_of(seat.rank, job.plan.holds)
        plan = msgspec.structs.replace(job.plan, holds=holds, rank=seat.rank)
        return msgspec.structs.replace(job, plan=plan, result=seat.result, stacks=seat.stacks)

    def begin(seat: RankSettings, link: RankLink) -> NoReturn:
        child.join(link, seat.gpus)
        child.begin(job_of(seat))
        leave(run_program(child, list(job.argv), job.path))

    outcome = lead(
        job.ranks,
        Path(job.stacks),
        begin,
        gpus=job.gpus or job.ranks,
        job=lambda seat: msgspec.json.encode(job_of(seat)),
        is_quiet=job.is_quiet,
    )
    told = msgspec.structs.replace(outcome, holds=job.plan.holds)
    Path(job.result).write_bytes(msgspec.json.encode(told))
    leave(0)


def serve(child: Child, server: JobServer[Job], stdin: RewoundInput) -> None:
    """One forked process per job, of which nothing is left when the client is told its end."""
    server.tell_started()
    while (job := server.peek()) is not None:
        stdin.rewind()
        if job.compiles:
            import_compiler()
        if job.is_led:
            prepare_ranks()
        if server.fork(partial(end_leftovers, is_told=not job.is_quiet)) is None:
            continue
        if job.is_quiet:
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(os.open(job.stdout, os.O_WRONLY) if job.stdout else nothing, 1)
            os.dup2(nothing, 2)
        if job.is_led:
            run_ranks(child, job)
        child.begin(job)
        leave(run_program(child, list(job.argv), job.path))


def main(prepare: Callable[[], None] = lambda: None) -> None:
    """Serves one program at a time. prepare: what is done once, for all of them"""
    stdin = RewoundInput(sys.argv[1])
    (server,) = JobServer.of_arguments(sys.argv[2:4], Job)
    adopt_orphans()
    os.environ[PRELOAD] = os.environ.pop("LD_PRELOAD")
    child = Child(preloaded(), kind=DeviceKind(os.environ.pop(DEVICE)))
    prepare()
    gc.collect()
    gc.freeze()  # torch's own objects are many, and no run has to look for garbage among them
    serve(child, server, stdin)


if __name__ == "__main__":
    main()
