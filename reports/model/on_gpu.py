"""The model of streams on a GPU: drawn programs under latches and in natural timing, and what CUDA
does where its documentation leaves room.

    python reports/model/on_gpu.py OUT.json [--programs 2000] [--first 0]

Needs a GPU, torch and cuda-bindings. A program's outcomes have to be among the model's under every
schedule; the questions are measured with a stream that is busy for a second, and answered in words.
Exit code 1 if an outcome is not allowed.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import torch

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "helpers"))

from modelled_gpu import programs_on_gpu
from racegate.jobs.environment import environment_of
from racegate.scenario.untrusted.files import write_json

BUSY_S = 0.5
TIMES = 1000  # of a question that is asked again and again


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One question about CUDA. seconds: how long it took while a stream was busy"""

    question: str
    answer: str
    seconds: float | None = None


def blocking_stream() -> torch.cuda.Stream:
    """One that the legacy default stream waits for."""
    handle = ctypes.c_void_p()
    runtime = ctypes.CDLL(None)
    library = getattr(runtime, "cudaStreamCreate", None) or _runtime().cudaStreamCreate
    if library(ctypes.byref(handle)):
        raise RuntimeError("cudaStreamCreate failed")
    return torch.cuda.ExternalStream(handle.value)


def _runtime() -> ctypes.CDLL:
    """The CUDA runtime that torch has loaded."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        if "libcudart.so" in line:
            return ctypes.CDLL(line.split()[-1])
    raise RuntimeError("no CUDA runtime is loaded")


class Busy:
    """Streams, one of which is busy for half a second, and what somebody else then has to wait."""

    def __init__(self) -> None:
        self.blocking, self.other = blocking_stream(), blocking_stream()
        self.free = torch.cuda.Stream()
        self.legacy = torch.cuda.default_stream()
        self.memory = torch.zeros(1 << 20, device="cuda")
        self.pinned = torch.zeros(1 << 20, pin_memory=True)
        self.pageable = torch.zeros(1 << 20)
        self.cycles = int(BUSY_S * self._cycles_per_s())

    def _cycles_per_s(self) -> float:
        torch.cuda.synchronize()
        begun_s = time.monotonic()
        torch.cuda._sleep(100_000_000)
        torch.cuda.synchronize()
        return 100_000_000 / (time.monotonic() - begun_s)

    def while_busy(self, stream: torch.cuda.Stream, wait: Callable[[], Any]) -> float:
        """Seconds that something takes while the stream is busy."""
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(self.cycles)
        begun_s = time.monotonic()
        wait()
        took_s = time.monotonic() - begun_s
        torch.cuda.synchronize()
        return took_s

    def event_on(self, stream: torch.cuda.Stream) -> torch.cuda.Event:
        event = torch.cuda.Event()
        event.record(stream)
        return event

    def finished(self) -> torch.cuda.Event:
        """An event whose record is complete."""
        event = self.event_on(self.free)
        event.synchronize()
        return event

    def filled(self, stream: torch.cuda.Stream) -> None:
        """Work on a stream is waited for."""
        with torch.cuda.stream(stream):
            self.memory[:8].fill_(1)
        self.event_on(stream).synchronize()

    def filled_behind(self, act: Callable[[], Any]) -> None:
        """Something of the legacy stream, and then work of another blocking one is waited for."""
        act()
        self.filled(self.other)

    def copied(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """The call of a copy returns."""
        with torch.cuda.stream(self.free):
            target.copy_(source, non_blocking=True)

    def asked(self, query: Callable[[], bool]) -> None:
        """Asks until the answer is yes."""
        while not query():
            time.sleep(0.001)


# A question, the stream that is busy, and what waits for it if the answer is yes.
QUESTIONS: tuple[tuple[str, str, Callable[[Busy], Any]], ...] = (
    (
        "synchronize of the legacy stream waits for a blocking one",
        "blocking",
        lambda busy: busy.legacy.synchronize(),
    ),
    (
        "synchronize of the legacy stream waits for a non-blocking one",
        "free",
        lambda busy: busy.legacy.synchronize(),
    ),
    (
        "synchronize of a blocking stream waits for the legacy one",
        "legacy",
        lambda busy: busy.other.synchronize(),
    ),
    (
        "a record on the legacy stream comes after a blocking one",
        "blocking",
        lambda busy: busy.event_on(busy.legacy).synchronize(),
    ),
    (
        "a record on a blocking stream comes after the legacy one",
        "legacy",
        lambda busy: busy.event_on(busy.other).synchronize(),
    ),
    (
        "work of the legacy stream comes after a blocking one",
        "blocking",
        lambda busy: busy.filled(busy.legacy),
    ),
    (
        "work of a blocking stream comes after the legacy one",
        "legacy",
        lambda busy: busy.filled(busy.other),
    ),
    (
        "work of a non-blocking stream comes after the legacy one",
        "legacy",
        lambda busy: busy.filled(busy.free),
    ),
    (
        "work of a blocking stream comes after another blocking one",
        "blocking",
        lambda busy: busy.filled(busy.other),
    ),
    (
        "likewise, with work of the legacy stream in between",
        "blocking",
        lambda busy: busy.filled_behind(lambda: busy.memory[8:16].fill_(1)),
    ),
    (
        "likewise, with a record on the legacy stream in between",
        "blocking",
        lambda busy: busy.filled_behind(lambda: busy.event_on(busy.legacy)),
    ),
    (
        "likewise, with a wait of the legacy stream in between",
        "blocking",
        lambda busy: busy.filled_behind(lambda: busy.legacy.wait_event(busy.finished())),
    ),
    (
        "likewise, with a wait of the legacy stream for an event never recorded in between",
        "blocking",
        lambda busy: busy.filled_behind(lambda: busy.legacy.wait_event(torch.cuda.Event())),
    ),
    (
        "likewise, with a query of the legacy stream in between",
        "blocking",
        lambda busy: busy.filled_behind(busy.legacy.query),
    ),
    (
        "a query of the legacy stream is answered for a blocking one",
        "blocking",
        lambda busy: busy.asked(busy.legacy.query),
    ),
    (
        "a wait of the host for an event never recorded waits for something",
        "free",
        lambda busy: torch.cuda.Event().synchronize(),
    ),
    (
        "the call of a non-blocking upload of 4 MiB of pageable memory waits for its stream",
        "free",
        lambda busy: busy.copied(busy.memory, busy.pageable),
    ),
    (
        "the call of a non-blocking upload of 32 bytes of pageable memory waits for its stream",
        "free",
        lambda busy: busy.copied(busy.memory[:8], busy.pageable[:8]),
    ),
    (
        "the call of a non-blocking download to pageable memory waits for its stream",
        "free",
        lambda busy: busy.copied(busy.pageable, busy.memory),
    ),
    (
        "the call of a non-blocking upload of pinned memory waits for its stream",
        "free",
        lambda busy: busy.copied(busy.memory, busy.pinned),
    ),
    (
        "the call of a copy on the device waits for its stream",
        "free",
        lambda busy: busy.copied(busy.memory[:8], busy.memory[8:16]),
    ),
)


def answers(busy: Busy) -> Iterator[Answer]:
    """Of all questions."""
    for question, stream, wait in QUESTIONS:
        took_s = busy.while_busy(getattr(busy, stream), partial(wait, busy))
        answer = "yes" if took_s > BUSY_S / 2 else "no"
        yield Answer(question=question, answer=answer, seconds=round(took_s, 4))
    yield from late_records(busy)


def late_records(busy: Busy) -> Iterator[Answer]:
    """How often a record with nothing unfinished before it is not found complete at once."""

    def late(question: str, before: Callable[[], Any], query: Callable[[], bool]) -> Answer:
        count = 0
        for _ in range(TIMES):
            before()
            count += not query()
        torch.cuda.synchronize()
        return Answer(question=question, answer=f"{count} of {TIMES} queries: not ready")

    def behind_waited_work() -> None:
        with torch.cuda.stream(busy.other):
            busy.memory[:8].fill_(1)
        busy.event_on(busy.other).synchronize()

    library, event = _runtime(), torch.cuda.Event()
    event.record(busy.other)
    handles = ctypes.c_void_p(event.cuda_event), ctypes.c_void_p(busy.other.cuda_stream)

    def by_ctypes() -> bool:
        library.cudaEventRecord(*handles)
        return library.cudaEventQuery(handles[0]) == 0

    def record_and_query() -> bool:
        return busy.event_on(busy.other).query()

    def nothing() -> None:
        """Nobody waits."""

    yield late("a record behind a synchronised device", torch.cuda.synchronize, record_and_query)
    yield late(
        "a record behind work that an event was waited for", behind_waited_work, record_and_query
    )
    yield late("a record behind nothing, again and again", nothing, record_and_query)
    yield late("likewise, without Python between record and query", nothing, by_ctypes)
    with torch.cuda.stream(busy.free):
        torch.cuda._sleep(busy.cycles)
    yield late("likewise, while another stream is busy", nothing, by_ctypes)
    torch.cuda.synchronize()

    def waited_for() -> None:
        busy.other.wait_event(busy.finished())

    yield late("a record behind a wait for a finished event", waited_for, by_ctypes)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--programs", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    found = []
    for one in answers(Busy()):
        print(f"{one.question}: {one.answer} ({one.seconds} s)", flush=True)
        found.append(one)
    begun_s = time.monotonic()
    count = programs_on_gpu(first=options.first, count=options.programs)
    content = {
        "environment": environment_of("cuda"),
        "seconds": round(time.monotonic() - begun_s, 1),
        "answers": found,
        "programs": count,
    }
    write_json(options.out, content)
    print(msgspec.json.encode(msgspec.structs.asdict(count) | {"wrong": len(count.wrong)}).decode())
    return int(bool(count.wrong))


if __name__ == "__main__":
    sys.exit(main())
