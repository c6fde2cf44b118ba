"""Runs that end where they have become the run in which nothing is held."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable
from typing import Any, cast

import msgspec
import pytest
import torch
from test_vllm_search import SCENARIO
from torch.utils._python_dispatch import TorchDispatchMode

from bare_session import engine_session, no_pages
from racegate.history.schedule import Hold
from racegate.interpose.device.copies import Copy
from racegate.interpose.device.library import Touch
from racegate.interpose.device.spans import Place, Spans
from racegate.interpose.outcome import Ending, Observation, Plan
from racegate.targets.common.client import Engine
from racegate.targets.common.inside.convergence import PIECE, Heard, Memory
from racegate.targets.common.server import ForkServer
from racegate.targets.common.wire import NOTHING_HELD, ReleaseRun, RunMode, Task

SIZE = 64
HELD = "d2h counts@take#1"


class Device:
    """Four bytes on the device, their copy in pinned memory, and a session that hears of it.

    whole_pages: whether the pages of the pinned memory can be closed
    """

    def __init__(self, *, holds: bool = False, whole_pages: bool = False) -> None:
        self.device = ctypes.create_string_buffer(b"\1\2\3\4", SIZE)
        self.pinned = ctypes.create_string_buffer(SIZE)
        self.low, self.host = map(ctypes.addressof, (self.device, self.pinned))
        self.closed: list[int] = []
        guard = self._set_pages if whole_pages else no_pages
        hold = Hold(op=HELD if holds else "nothing")
        self.engine = engine_session(hold, is_recording=False, guard=guard)
        session = self.session = self.engine.session
        session.memory_added(self.low, SIZE, Place.DEVICE)
        session.memory_added(self.host, SIZE, Place.PINNED, is_whole_pages=whole_pages)
        listener = self.engine.listener
        listener.name_buffers([(self.host, self.host + SIZE, "counts")])
        listener.begin(heard=Heard(session))

    def _set_pages(self, low: int, high: int, *, mode: int) -> bool:
        self.closed.append(mode)
        return True

    def take(self) -> None:
        """A copy to the host."""
        low, host = self.low, self.host
        run = Copy(host, low, 4)
        self.session.issue("d2h", 0, ((low, low + 4),), ((host, host + 4),), run, stack=TAKE)

    def read(self) -> None:
        """The host reads the copy, and says so."""
        self.session.host_access("host read", ((self.host, self.host + 4),), ())

    def land(self) -> tuple[int, ...]:
        """All that is held has landed."""
        self.session.queue.force_all()
        return self.engine.listener.digest


TAKE = (("engine.py", 1, "take"),)
Steps = Callable[[Device], None]


def overwritten(device: Device) -> None:
    device.take()
    device.device[0] = 9


def read_late(device: Device) -> None:
    device.take()
    device.session.queue.force_all()
    device.read()


def read_early(device: Device) -> None:
    device.take()
    device.read()


def test_a_late_copy_that_nobody_read_too_early_is_not_heard_of() -> None:
    assert _heard(read_late, holds=True) == _heard(read_late, holds=False)


def test_a_read_before_the_copy_has_landed_is_heard() -> None:
    assert _heard(read_early, holds=True) != _heard(read_early, holds=False)


def test_a_copy_that_landed_with_other_bytes_is_heard_where_its_page_stays_open() -> None:
    assert _heard(overwritten, holds=True) != _heard(overwritten, holds=False)


def test_of_closed_pages_only_reads_are_heard() -> None:
    late = Device(holds=True, whole_pages=True)
    overwritten(late)
    at_once = Device(whole_pages=True)
    overwritten(at_once)
    assert late.land() == at_once.land()
    assert 0 in late.closed
    late.read()
    at_once.read()
    assert late.closed[-1] == 2, "open for a read that is reported"
    assert late.land() != at_once.land()


def test_a_read_that_nobody_reported_is_heard() -> None:
    quiet, touched = Device(), Device()
    for is_write in (True, False):
        before = touched.land()
        touch = Touch(thread=0, address=touched.host, size=1, is_write=is_write, page=None)
        touched.session.touches.touched(touch)
        assert (touched.land() == before) is is_write
    assert quiet.land() != touched.land()


@pytest.mark.parametrize("value", [True, (3, 1), None])
def test_values_and_sizes_are_heard(value: object) -> None:
    one, other = Device(), Device()
    one.session.host_learns(value)
    assert one.land() != other.land()
    other.session.host_learns(value)
    assert one.land() == other.land()


def test_what_a_host_function_does_is_never_the_same() -> None:
    one, other = Device(), Device()
    one.session.issue("host function", 0, (), (), lambda: None, stack=TAKE)
    assert one.land() != other.land()


def test_memory_is_the_same_when_all_of_it_is() -> None:
    first, second = (ctypes.create_string_buffer(200_000) for _ in range(2))
    spans = Spans()
    for buffer in (first, second):
        spans.add(ctypes.addressof(buffer), 200_000, Place.DEVICE, is_whole_pages=False)
    memory = Memory(spans)
    begun = memory.digest(spans)
    first[199_999] = 7
    changed = memory.digest(spans)
    first[199_999], second[199_999] = 0, 7
    assert len({begun, changed, memory.digest(spans)}) == 3
    second[199_999] = 0
    assert memory.digest(spans) == begun
    spans.remove(ctypes.addressof(second))
    assert memory.digest(spans) != begun


def test_zeros_of_the_device_are_given_back_and_read_as_zeros() -> None:
    size = 4 * PIECE
    with mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as mapped:
        mapped[:] = bytes(size)
        mapped[PIECE] = 5
        low = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
        spans = Spans()
        spans.add(low, size, Place.DEVICE, is_whole_pages=True)
        memory = Memory(spans)
        begun = memory.digest(spans)
        assert (mapped[PIECE], mapped[:PIECE]) == (5, bytes(PIECE))
        mapped[size - 1] = 3
        assert memory.digest(spans) != begun
        mapped[size - 1] = 0
        assert memory.digest(spans) == begun


def test_own_work_takes_no_way_through_modes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 0, raising=False)
    engine = Device().engine
    seen: list[str] = []

    class Mode(TorchDispatchMode):  # type: ignore[misc]
        """Writes down what comes by."""

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    def work(*_: object) -> None:
        torch.zeros(2).add_(1)

    with Mode():
        work()
        through_modes = len(seen)
        engine.launch("ours", [], [], work)
    assert through_modes == len(seen) > 0


def test_a_stack_without_ours_is_the_same_each_time() -> None:
    session = Device().session
    stacks = []
    for _ in range(2):
        stacks.append(session.stack())
    assert stacks[0] is stacks[1]
    assert stacks[0][0][2] == "test_a_stack_without_ours_is_the_same_each_time"


class Asked(Engine):
    """The client's engine, whose answers are given. tasks: what it was asked"""

    def __init__(self, base: ReleaseRun, baseline: ReleaseRun, held: ReleaseRun) -> None:
        super().__init__((cast(ForkServer, None),))  # nothing is sent
        self._answers_of = {
            RunMode.BASELINE: baseline,
            RunMode.CONVERGING: held,
            RunMode.WHOLE: held,
        }
        self._recorded = base
        self.tasks: list[Task] = []

    def _ask(self, task: Task, timeout_s: float) -> ReleaseRun:
        self.tasks.append(task)
        return self._recorded if task.plan.is_recording else self._answers_of[task.run_mode]


BASE = ReleaseRun(
    ending=Ending.FINISHED,
    observations=(Observation("used", "1", "1"),),
    events=30,
    steps=5,
    delivered={"A": (5,)},
    turns={HELD: 3, "other": 1},
)
CONVERGED = ReleaseRun(
    ending=Ending.FINISHED,
    realised={f"{HELD} until forced": 1},
    events=9,
    gaps={HELD: ("host read",)},
    has_converged=True,
    cpu_s=0.25,
)
PLAN = Plan(holds=(Hold(op=HELD),), is_recording=False)


def test_a_baseline_run_is_made_once_per_recorded_run() -> None:
    engine = Asked(BASE, BASE, CONVERGED)
    engine.run(SCENARIO, Plan())
    for _ in range(2):
        told = engine.run(SCENARIO, PLAN)
    run_modes = [task.run_mode for task in engine.tasks]
    assert run_modes == [RunMode.WHOLE, RunMode.BASELINE, RunMode.CONVERGING, RunMode.CONVERGING]
    assert engine.tasks[1].plan == NOTHING_HELD
    assert [task.turn for task in engine.tasks] == [0, 0, 3, 3]
    assert engine.runs == 3, "the baseline is no schedule that was tried"
    assert (told.seen, told.steps) == (BASE.seen, 5)
    assert (told.realised, told.gaps) == (CONVERGED.realised, CONVERGED.gaps)
    assert (told.events, told.cpu_s) == (9, 0.25)


def test_no_run_joins_a_baseline_run_that_is_another_run() -> None:
    other = msgspec.structs.replace(BASE, delivered={"A": (6,)})
    assert _run_modes(BASE, other) == [RunMode.WHOLE, RunMode.BASELINE, RunMode.WHOLE]


def test_no_run_joins_where_the_host_reads_what_nobody_sees() -> None:
    unseen = {"pinned memory touched below Python": 1}
    base = msgspec.structs.replace(BASE, not_seen=unseen)
    assert _run_modes(base, base) == [RunMode.WHOLE, RunMode.WHOLE]


def _run_modes(base: ReleaseRun, baseline: ReleaseRun) -> list[RunMode]:
    held = msgspec.structs.replace(CONVERGED, has_converged=False)
    engine = Asked(base, baseline, held)
    engine.run(SCENARIO, Plan())
    assert engine.run(SCENARIO, PLAN) == held
    return [task.run_mode for task in engine.tasks]


def _heard(steps: Steps, *, holds: bool) -> tuple[int, ...]:
    device = Device(holds=holds)
    steps(device)
    return device.land()
