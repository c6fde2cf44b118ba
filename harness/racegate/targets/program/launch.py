"""Starts programs on the virtual device and reads what came of them.

One process imports torch and stands up the device; it forks for each run, so that a search over
many schedules imports torch once. Each run has a process of its own.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path

import msgspec

from racegate.interpose.build import find_toolkit
from racegate.interpose.errors import INTERRUPTED, BadInput, ExitCode
from racegate.interpose.gpus import GPUS
from racegate.interpose.outcome import (
    CompileMode,
    DeviceKind,
    Ending,
    Job,
    Outcome,
    Plan,
    Sources,
)
from racegate.interpose.program.stdin import open_stdin
from racegate.interpose.program.timeouts import where_it_stood
from racegate.interpose.ranks.outcome import RanksOutcome
from racegate.scenario.untrusted.signals import stops_later
from racegate.targets.common.server import ForkServer, PrintPlace, open_server
from racegate.targets.common.variables import environment_for
from racegate.targets.program.ranks import merged

GRACE_S = 10.0  # for a program that is told to stop
_UNTOLD = "\n  what was found until then is not known: its main thread did not answer"


@dataclass(frozen=True, slots=True)
class Program:
    """A script, or `-m` and a module, with its arguments.

    timeout_s: 0 for none; suppressed: signatures that its own tests pass over
    memory_bytes: of the virtual device, 0 for what its GPU has; compiling: as of a Job
    gpu: which of `GPUS` the device says that it is; empty for none, with half of the host's memory
    ranks: as how many ranks it runs, as `torchrun` would start them; 0: as one process
    gpus: how many it sees, it and what it starts; 0: one, or one for each rank
    path: a folder whose packages come before all others; empty for none
    sources: texts that it reads in the place of its files, as of a Job
    """

    argv: tuple[str, ...]
    timeout_s: float = 0.0
    suppressed: tuple[str, ...] = ()
    memory_bytes: int = 0
    gpu: str = ""
    compiling: CompileMode | None = None
    ranks: int = 0
    path: str = ""
    sources: Sources = ()
    gpus: int = 0


def checked_program(
    argv: tuple[str, ...],
    *,
    timeout_s: float = 0.0,
    suppressed: tuple[str, ...] = (),
    memory_bytes: int = 0,
    gpu: str = "",
    compiling: CompileMode | None = None,
    ranks: int = 0,
) -> Program:
    """Raises BadInput if there is no such script or module or GPU, or the script is no Python."""
    if gpu and gpu not in GPUS:
        raise BadInput(f"--gpu {gpu}: no such GPU is known; these are: {', '.join(GPUS)}")
    if not argv or argv == ("-m",):
        raise BadInput("no script: racegate torch run SCRIPT [ARGS], or -m MODULE [ARGS]")
    if argv[0] == "-m":
        _check_module(argv[1])
    elif argv[0].startswith("-"):
        raise BadInput(f"no such option: {argv[0]}")
    else:
        _check_script(Path(argv[0]))
    return Program(argv, timeout_s, suppressed, memory_bytes, gpu, compiling, ranks)


def _check_module(name: str) -> None:
    """Only the first part of its name: to look further, Python would have to run it."""
    first = name.partition(".")[0]
    known = {*sys.builtin_module_names, *sys.stdlib_module_names}
    if first not in known and not PathFinder.find_spec(first, [os.getcwd(), *sys.path]):
        raise BadInput(f"no module named {first}")


def _check_script(path: Path) -> None:
    if not path.exists():
        raise BadInput(f"{path} does not exist")
    if path.is_dir() and not (path / "__main__.py").is_file():
        raise BadInput(f"{path} is a folder without a __main__.py: name a script, or -m MODULE")
    if path.is_dir() or path.suffix == ".pyc" or zipfile.is_zipfile(path):
        return  # Python runs these too
    try:
        with warnings.catch_warnings(action="ignore"):
            compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror or error}") from None
    except SyntaxError as error:
        line = f" line {error.lineno}:" if error.lineno else ""
        raise BadInput(f"{path} is not a Python script:{line} {error.msg}") from None
    except ValueError as error:  # a null byte, before Python 3.11.4
        raise BadInput(f"{path} is not a Python script: {error}") from None


class DeviceServer:
    """A fork server that holds a device."""

    def __init__(self, server: ForkServer, kind: DeviceKind = DeviceKind.VIRTUAL) -> None:
        self.kind = kind
        self._server = server
        self._compiles = False

    def run(
        self, program: Program, plan: Plan, *, is_quiet: bool = False, stdout: Path | None = None
    ) -> Outcome:
        """One run under one plan. is_quiet: the program's own output is not shown; what it prints
        goes to the file stdout, if one is named.

        Ctrl-C stops the program as it would without a device, and its outcome says so; a quiet run
        is ended at once, and KeyboardInterrupt goes on. Raises BadInput: memory is asked for that
        a real GPU cannot be given.
        """
        if self.kind is not DeviceKind.VIRTUAL and (program.memory_bytes or program.gpu):
            name = "--gpu" if program.gpu else "--memory"
            raise BadInput(f"{name} is of the virtual device: a GPU is what it is")
        if (program.ranks or program.gpus) and self.kind is not DeviceKind.VIRTUAL:
            name = "--ranks" if program.ranks else "--gpus"
            raise BadInput(f"{name} is of the virtual device, of which there are as many as wanted")
        if program.compiling is CompileMode.INDUCTOR and self.kind is not DeviceKind.VIRTUAL:
            raise BadInput(
                "--compile inductor is of the virtual device: on a GPU regions run as plain Python"
            )
        with (
            tempfile.TemporaryDirectory(prefix="racegate-") as folder,
            _ResultFile(program) as result,
        ):
            job = Job(
                argv=program.argv,
                plan=plan,
                result=result.name,
                stacks=folder,
                timeout_s=program.timeout_s,
                suppressed=program.suppressed,
                memory_bytes=program.memory_bytes,
                gpu=program.gpu,
                ranks=program.ranks,
                gpus=program.gpus,
                path=program.path,
                compiling=program.compiling,
                compiles=self._compiles,
                is_quiet=is_quiet,
                sources=program.sources,
                stdout="" if stdout is None else str(stdout),
            )
            try:
                with stops_later():
                    pid = self._server.begin(job)
                code = self._server.wait(pid, program.timeout_s)
            except KeyboardInterrupt:
                self._interrupt(pid, is_quiet=is_quiet)
                return _interrupted(result)
            if code is None:
                return _ended(program, where_it_stood(Path(folder)), result.read())
            outcome = result.read() or _lost(code)
            self._compiles |= outcome.compiled_regions > 0
            return outcome

    def _interrupt(self, pid: int, *, is_quiet: bool) -> None:
        """Ends a run: at once, or as Ctrl-C would. A second Ctrl-C ends it at once."""
        if is_quiet:
            self._server.kill(pid)
            raise KeyboardInterrupt
        os.kill(pid, signal.SIGINT)
        try:
            self._server.wait(pid, GRACE_S)
        except KeyboardInterrupt:
            self._server.kill(pid)


@contextmanager
def open_device(
    kind: DeviceKind = DeviceKind.VIRTUAL, *, stdout: PrintPlace = PrintPlace.PLAIN
) -> Iterator[DeviceServer]:
    """Builds the runtime if needed and starts the device. Raises BadInput if that cannot be."""
    environment = environment_for(find_toolkit(), kind)
    with open_stdin() as stdin:
        command = [sys.executable, "-m", "racegate.interpose.child", stdin.copy]
        with open_server(
            command, environment, what=f"the {kind} device", stdin=stdin.file, stdout=stdout
        ) as server:
            yield DeviceServer(server, kind)


def _ended(program: Program, where: str, told: Outcome | None) -> Outcome:
    """It took too long, or hung. told: what it had found until then, if it could still say so"""
    code, text = ExitCode.BAD_INPUT, f"the program did not end within {program.timeout_s:g} s"
    if not program.timeout_s:
        code = ExitCode.BROKEN_HARNESS
        text = "the program hangs: all of its threads stand still, and nothing can wake them"
    if told is None:
        told, where = Outcome(ending=Ending.TIMED_OUT), where + _UNTOLD
    return msgspec.structs.replace(
        told, ending=Ending.TIMED_OUT, exit_code=code, message=text + where
    )


def _lost(code: int) -> Outcome:
    if code == ExitCode.NOT_MODELLED:
        text = "the virtual CUDA runtime ended the run (its message is above)"
        return Outcome(ending=Ending.NOT_MODELLED, exit_code=code, message=text)
    how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
    text = f"the process ended {how} before its script was over; nothing was judged"
    return Outcome(ending=Ending.LOST, exit_code=code, message=text)


class _ResultFile:
    """What a run writes its outcome to: in memory, because a program may empty the folder of
    temporary files. name: by which another process opens it
    """

    def __init__(self, program: Program) -> None:
        self._has_ranks = bool(program.ranks or program.gpus)

    def __enter__(self) -> _ResultFile:
        self._file = os.memfd_create("racegate-result")
        self.name = f"/proc/{os.getpid()}/fd/{self._file}"
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._file)

    def read(self) -> Outcome | None:
        """None if nothing was written."""
        data = os.pread(self._file, os.fstat(self._file).st_size, 0)
        if data and self._has_ranks:
            return merged(msgspec.json.decode(data, type=RanksOutcome))
        return msgspec.json.decode(data, type=Outcome) if data else None


def _interrupted(result: _ResultFile) -> Outcome:
    """What the run found before it was stopped, if it had time to say so."""
    found = result.read() or Outcome(ending=Ending.INTERRUPTED, message="interrupted")
    return msgspec.structs.replace(found, ending=Ending.INTERRUPTED, exit_code=INTERRUPTED)
