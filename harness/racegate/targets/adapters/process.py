"""The process of a foreign engine: lines to it, lines from it, within limits.

Standard input and output carry the protocol, standard error is kept for what it says last. Nothing
here waits for longer than a limit: a process that is silent, floods, grows or closes its output is
ended, with all that it has started.
"""

from __future__ import annotations

import os
import resource
import selectors
import signal
import subprocess
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from racegate.targets.adapters.errors import CommandError, EngineLostError, HugeLineError, LossKind

CHUNK_BYTES = 1 << 16
TICK_S = 0.1
END_S = 2.0
MIB = 1 << 20
STDERR_LINES = 12
STDERR_LINE_BYTES = 400


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine may use.

    start_s: from its start to its introduction, in which models may be loaded
    timeout_s: for any later question
    memory_mib: resident, with its children; looked at while racegate waits for it
    address_mib: of address space (RLIMIT_AS), for engines that reserve no more than they use
    line_mib, lines: of what it writes for one question
    """

    start_s: float = 300.0
    timeout_s: float = 120.0
    memory_mib: int = 8192
    address_mib: int | None = None
    line_mib: int = 64
    lines: int = 2_000_000


class EngineProcess:
    """One process. Close it: nothing of it outlives that."""

    def __init__(
        self, command: Sequence[str], *, limits: Limits, folder: Path | None = None
    ) -> None:
        self._limits = limits
        self._unsent = bytearray()
        self._partial = bytearray()
        self._lines: deque[bytes] = deque()
        self._stderr = _Tail()
        self._looked = 0.0
        self._process = _start(command, limits, folder)
        self._selector = selectors.DefaultSelector()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
        assert self._process.stdout is not None and self._process.stderr is not None
        self._selector.register(self._process.stdout, selectors.EVENT_READ, self._read)
        self._selector.register(self._process.stderr, selectors.EVENT_READ, self._read_stderr)

    @property
    def pid(self) -> int:
        """Of the engine, and of the group of processes that it starts."""
        return self._process.pid

    @property
    def stderr(self) -> tuple[str, ...]:
        """The last lines of standard error."""
        return self._stderr.lines()

    def send(self, line: bytes) -> None:
        """A question, which is written while its answer is waited for."""
        assert self._process.stdin is not None
        if not self._unsent:
            self._selector.register(self._process.stdin, selectors.EVENT_WRITE, self._write)
        self._unsent += line

    def line(self, asked: float, within_s: float) -> bytes:
        """The next line, without its end. asked: in time.monotonic; within_s: from then on.

        Raises EngineLostError, and HugeLineError if the line is longer than it may be.
        """
        while not self._lines:
            self._turn(asked, within_s)
        return self._lines.popleft()

    def unasked(self) -> bytes | None:
        """What it has written although nothing was asked, as far as it is here."""
        for key, _ in self._selector.select(0):
            with suppress(EngineLostError):
                key.data()
        return self._lines.popleft() if self._lines else bytes(self._partial[:200]) or None

    def close(self) -> None:
        """Ends it: it may leave by itself when its input ends, and is killed if it does not."""
        self._selector.close()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        self._end(END_S)

    def _turn(self, asked: float, within_s: float) -> None:
        now = time.monotonic()
        left = asked + within_s - now
        if left <= 0:
            raise self._lost(
                LossKind.SILENT,
                f"the engine has not answered within {within_s:g} s: it hangs, or needs more time",
            )
        self._look_at_memory(now)
        for key, _ in self._selector.select(min(TICK_S, left)):
            key.data()

    def _read(self) -> None:
        chunk = self._taken(self._process.stdout)
        if chunk is None:
            return
        if not chunk:
            raise self._gone()
        self._partial += chunk
        if b"\n" in chunk:
            *whole, rest = self._partial.split(b"\n")
            self._lines.extend(bytes(line) for line in whole)
            self._partial = rest
        if len(self._partial) > self._limits.line_mib * MIB:
            start = bytes(self._partial[:80])
            raise HugeLineError(
                f"a line of more than {self._limits.line_mib} MiB, which begins with {start!r}"
            )

    def _read_stderr(self) -> None:
        chunk = self._taken(self._process.stderr)
        if chunk:
            self._stderr.add(chunk)
        elif chunk is not None:
            assert self._process.stderr is not None
            self._selector.unregister(self._process.stderr)

    def _write(self) -> None:
        assert self._process.stdin is not None
        try:
            sent = os.write(self._process.stdin.fileno(), self._unsent[:CHUNK_BYTES])
        except BlockingIOError:
            return
        except BrokenPipeError:
            sent = len(self._unsent)  # it reads no more: what it writes, or its end, says why
        del self._unsent[:sent]
        if not self._unsent:
            self._selector.unregister(self._process.stdin)

    def _taken(self, pipe: object) -> bytes | None:
        """What can be read now: b"" at the end, None if nothing."""
        assert hasattr(pipe, "fileno")
        try:
            return os.read(pipe.fileno(), CHUNK_BYTES)
        except BlockingIOError:
            return None

    def _look_at_memory(self, now: float) -> None:
        if now - self._looked < TICK_S:
            return
        self._looked = now
        used = resident_bytes(self._process.pid)
        if used > self._limits.memory_mib * MIB:
            raise self._lost(
                LossKind.MEMORY,
                f"the engine holds {used // MIB} MiB of memory, {self._limits.memory_mib} are "
                "allowed",
            )

    def _gone(self) -> EngineLostError:
        """Its output has ended."""
        middle = f", in the middle of a line: {bytes(self._partial[:80])!r}" * bool(self._partial)
        try:
            code = self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            return self._lost(
                LossKind.EXITED, f"the engine closed its standard output and goes on{middle}"
            )
        return self._lost(LossKind.EXITED, f"the engine {_how(code)} before it answered{middle}")

    def _lost(self, kind: LossKind, why: str) -> EngineLostError:
        """Ends what is left of it, and takes its last words."""
        self._end(0)
        while chunk := self._taken(self._process.stderr):
            self._stderr.add(chunk)
        return EngineLostError(kind, why, self.stderr)

    def _end(self, grace_s: float) -> None:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(grace_s)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class _Tail:
    """The last lines of a stream, each as far as it fits."""

    def __init__(self) -> None:
        self._last: deque[bytes] = deque(maxlen=STDERR_LINES)
        self._open = b""

    def add(self, chunk: bytes) -> None:
        *whole, rest = (self._open + chunk).split(b"\n")
        self._last.extend(line[:STDERR_LINE_BYTES] for line in whole[-STDERR_LINES:])
        self._open = rest[:STDERR_LINE_BYTES]

    def lines(self) -> tuple[str, ...]:
        kept = [*self._last, self._open]
        return tuple(line.decode(errors="replace") for line in kept if line.strip())[-STDERR_LINES:]


def _start(command: Sequence[str], limits: Limits, folder: Path | None) -> subprocess.Popen[bytes]:
    if not command:
        raise CommandError("no command: say how the engine is started, as in `-- python engine.py`")
    try:
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd=folder,
            start_new_session=True,
        )
    except OSError as error:
        raise CommandError(f"cannot start the engine {command[0]!r}: {error.strerror}") from error
    if limits.address_mib is not None and hasattr(resource, "prlimit"):
        most = limits.address_mib * MIB
        with suppress(ProcessLookupError):
            resource.prlimit(process.pid, resource.RLIMIT_AS, (most, most))
    return process


def _how(code: int) -> str:
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"


def resident_bytes(pid: int) -> int:
    """The resident memory of a process and its descendants; 0 where /proc does not tell."""
    total = 0
    waiting = [pid]
    while waiting:
        folder = Path("/proc") / str(waiting.pop())
        with suppress(OSError, ValueError, IndexError):
            pages = int((folder / "statm").read_text().split()[1])
            total += pages * resource.getpagesize()
            for task in (folder / "task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
    return total
