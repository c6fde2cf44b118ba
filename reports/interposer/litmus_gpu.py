"""What a real GPU and PyTorch's own stream sanitizer see of the litmus programs.

    python reports/interposer/litmus_gpu.py [--jobs N] OUT.json

Needs torch, a GPU and this repository. Every program runs in a child process, several times as it
is, once with a wait after every operation (what it means), and once for each legal delay: a
millisecond of idling before every copy between host and device, before every operation of the side
streams, of the first of them, or of the default stream. A delay changes no order that the program
asked for, so whatever it brings to light is a value that the program may produce. In a second child
the program runs once under `torch.cuda._sanitizer`. A summary goes to stderr.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from queue import Empty, SimpleQueue

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from racegate.scenario.untrusted.files import write_json

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "interpose"))

from litmus.registry import Expected, Program, load, observe

PLAIN_RUNS = 5
IDLE_CYCLES = 2_000_000  # about a millisecond
CHILD_LIMIT_S = 60
SANITIZER_SAYS = "CSAN detected a possible data race"
COPIES, SIDE, FIRST_SIDE, DEFAULT = "copies", "side streams", "first side stream", "default stream"


@dataclass(slots=True)
class Seen:
    """What one program showed.

    values: per way of running it the different observations, as JSON
    sanitizer: the first line of each of its reports
    """

    program: str
    pair: str
    expected: str
    observable: bool
    values: dict[str, list[str]] = field(default_factory=dict)
    sanitizer: list[str] = field(default_factory=list)
    error: str = ""

    @property
    def varies(self) -> bool:
        """Whether two runs observed different values."""
        return len({value for found in self.values.values() for value in found}) > 1


class OneByOne(TorchDispatchMode):
    """Waits for the device after every operation: what the program means, in its own order."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        torch.cuda.synchronize()
        return result


class Delay(TorchDispatchMode):
    """Lets the stream idle before the operations that `which` names."""

    def __init__(self, which: str) -> None:
        super().__init__()
        self.which = which
        self.first_side: torch.cuda.Stream | None = None

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if self._is_meant(args, kwargs or {}):
            torch.cuda._sleep(IDLE_CYCLES)
        return func(*args, **(kwargs or {}))

    def _is_meant(self, args: tuple, kwargs: dict) -> bool:
        if self.which == COPIES:
            devices = {str(kwargs["device"])} if kwargs.get("device") is not None else set()
            devices |= {arg.device.type for arg in args if isinstance(arg, torch.Tensor)}
            return len({name.partition(":")[0] for name in devices}) > 1
        stream = torch.cuda.current_stream()
        if stream == torch.cuda.default_stream():
            return self.which == DEFAULT
        self.first_side = self.first_side or stream
        return self.which == SIDE or (self.which == FIRST_SIDE and stream == self.first_side)


@contextlib.contextmanager
def _under(mode: TorchDispatchMode) -> Iterator[None]:
    """The mode in this thread and in those that the program starts."""
    run = threading.Thread.run

    def run_under(thread: threading.Thread) -> None:
        with mode:
            run(thread)

    threading.Thread.run = run_under
    try:
        with mode:
            yield
    finally:
        threading.Thread.run = run


def _observations(program: Program) -> str:
    seen: list[tuple[str, object]] = []
    observe.bound = lambda name, value: seen.append((name, value))
    program.run()
    torch.cuda.synchronize()
    return json.dumps(seen)


def _values(program: Program) -> dict[str, list[str]]:
    """In a child: the different observations of each way of running the program."""
    found = {"as it is": sorted({_observations(program) for _ in range(PLAIN_RUNS)})}
    if program.theme != "graphs":  # to synchronise would end a capture
        with _under(OneByOne()):
            found["one by one"] = [_observations(program)]
    for which in (COPIES, SIDE, FIRST_SIDE, DEFAULT):
        with _under(Delay(which)):
            found[f"late {which}"] = [_observations(program)]
    return found


def _sanitized(program: Program) -> bool:
    """In a child: whether PyTorch's sanitizer raised, enabled as TORCH_CUDA_SANITIZER=1 does it."""
    from torch.cuda import _sanitizer

    if not _sanitizer.cuda_sanitizer.enabled:
        _sanitizer.enable_cuda_sanitizer()
    try:
        program.run()
    except _sanitizer.CUDASanitizerErrors:
        return True
    finally:
        torch.cuda.synchronize()  # the next program begins with nothing in flight
    return False


def _serve(job: str, orders: Connection) -> None:
    """Body of a child process: answers one program after another until told to end."""
    programs = load()
    while (name := orders.recv()) is not None:
        with tempfile.TemporaryFile("w+") as errors:
            sys.stderr.flush()
            os.dup2(errors.fileno(), 2)
            try:
                answer = _values(programs[name]) if job == "values" else _sanitized(programs[name])
                broken = ""
            except (RuntimeError, ValueError, TypeError, AttributeError, ImportError) as error:
                answer, broken = None, f"{type(error).__name__}: {error}"
            sys.stderr.flush()
            errors.seek(0)
            orders.send((answer, broken, errors.read()))
        if broken:
            os._exit(1)  # a CUDA context that saw an error may be lost


class Child:
    """A process that runs programs of one job, with a CUDA context of its own; replaced if it hangs
    or breaks.
    """

    def __init__(self, job: str) -> None:
        self._job = job
        self._process: BaseProcess | None = None
        self._orders: Connection | None = None

    def ask(self, name: str) -> tuple[object, str, str]:
        """Runs one program. Returns: the answer, what went wrong, and its stderr."""
        orders = self._connection()
        orders.send(name)
        try:
            if orders.poll(CHILD_LIMIT_S):
                answer, broken, text = orders.recv()
            else:
                answer, broken, text = None, f"no answer in {CHILD_LIMIT_S} s", ""
        except EOFError:
            answer, broken, text = None, "the process died", ""
        if broken:
            self.close()
        return answer, broken, text

    def close(self) -> None:
        """Ends the process."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
        self._process = self._orders = None

    def _connection(self) -> Connection:
        if self._orders is None:
            context = multiprocessing.get_context("spawn")
            self._orders, theirs = context.Pipe()
            self._process = context.Process(target=_serve, args=(self._job, theirs), daemon=True)
            self._process.start()
            theirs.close()
        return self._orders


def look(program: Program, children: dict[str, Child]) -> Seen:
    """Runs one program in two children."""
    seen = Seen(program.name, program.pair, program.expected.value, program.observable)
    values, broken, _ = children["values"].ask(program.name)
    if broken:
        seen.error = broken
    else:
        seen.values = values
    raised, broken, text = children["sanitizer"].ask(program.name)
    reports = [line for line in text.splitlines() if line.startswith(SANITIZER_SAYS)]
    seen.sanitizer = reports or (["raised in a thread"] if raised else [])
    if broken:
        seen.error += f" sanitizer: {broken}"
    return seen


def _work(names: SimpleQueue[str], found: dict[str, Seen]) -> None:
    """Body of a thread: takes programs until none is left, with children of its own."""
    programs = load()
    children = {job: Child(job) for job in ("values", "sanitizer")}
    while not names.empty():
        try:
            name = names.get_nowait()
        except Empty:
            break
        found[name] = look(programs[name], children)
        print(f"{len(found)} {name}", file=sys.stderr, flush=True)
    for child in children.values():
        child.close()


def summary(all_seen: list[Seen]) -> str:
    """Counts of what varied and of what the sanitizer reported, and the programs that broke."""
    lines = []
    for expected in Expected:
        found = [seen for seen in all_seen if seen.expected == expected.value]
        varied = sum(seen.varies for seen in found)
        reported = sum(bool(seen.sanitizer) for seen in found)
        lines.append(
            f"{expected.value}: {len(found)} programs, {varied} observed different values, "
            f"PyTorch's sanitizer reported {reported}"
        )
    wrong = [s.program for s in all_seen if s.varies and not s.observable]
    lines.append(f"varied, not expected to: {', '.join(wrong) or 'none'}")
    unseen = [s.program for s in all_seen if s.observable and not s.varies and not s.error]
    lines.append(f"observable, did not vary here: {', '.join(unseen) or 'none'}")
    lines += [f"ERROR {seen.program}: {seen.error}" for seen in all_seen if seen.error]
    return "\n".join(lines)


def main() -> None:
    """Looks at all programs, or at those named."""
    parser = argparse.ArgumentParser(description="litmus programs on a GPU")
    parser.add_argument("out", type=Path, metavar="OUT.json")
    parser.add_argument("programs", nargs="*", help="names of programs; all without one")
    parser.add_argument("--jobs", type=int, default=6)
    options = parser.parse_args()
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")  # or streams share a queue
    names = options.programs or list(load())
    waiting: SimpleQueue[str] = SimpleQueue()
    for name in names:
        waiting.put(name)
    found: dict[str, Seen] = {}
    threads = [threading.Thread(target=_work, args=(waiting, found)) for _ in range(options.jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    all_seen = [found[name] for name in names]
    facts = {"device": _device(), "torch": str(torch.__version__), "cuda": torch.version.cuda}
    write_json(options.out, {**facts, "programs": all_seen})
    print(summary(all_seen), file=sys.stderr)


def _device() -> str:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "none"


if __name__ == "__main__":
    main()
