"""Holds as latches: what is held, what opens it, and what is said of it afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
import pytest

from litmus_run import EDGE
from racegate.device.chooser import HoldChooser
from racegate.device.cuda.device import CudaDevice
from racegate.device.cuda.latches import Latches
from racegate.device.cuda.pacing import Pace, Pacing
from racegate.device.protocol import DeadlockError, Stream, writes
from racegate.history.schedule import parse_schedule
from racegate.history.trace import Queried
from sync_driver import StuckError, SyncDriver, SyncStream

LANES = ("main", "copy")
ROWS = 4
BOTH = pytest.mark.parametrize("pacing", list(Pacing))


class Program:
    """Counts up on the device and copies it to the host, on two streams."""

    def __init__(
        self,
        *holds: str,
        pacing: Pacing = Pacing.NATURAL,
        driver: SyncDriver | None = None,
        patience_s: float = 10.0,
    ) -> None:
        self.driver = SyncDriver() if driver is None else driver
        self.device = CudaDevice(
            LANES,
            self.driver,
            pace=Pace(pacing, patience_s),
            chooser=HoldChooser(parse_schedule(holds)),
        )
        self.main, self.copy = (self.device.stream(lane) for lane in LANES)
        self.value = self.device.device_buffer("value", (ROWS,), np.int32, stream=self.main)
        self.landing = self.device.host_buffer("landing", (ROWS,), np.int32)
        self.landing.write(np.zeros(ROWS, np.int32))
        self.landed = self.device.event("landed")

    def set(self, value: int, *, step: int) -> None:
        uses = (writes(self.value),)
        self.device.launch(self.main, _fill, "set", step=step, uses=uses, value=value)

    def land(self, *, step: int, stream: Any = None) -> None:
        stream = self.main if stream is None else stream
        self.device.download(stream, self.landing, self.value, "value", step=step, rows=ROWS)
        self.device.record(stream, self.landed)

    def host(self, name: str, *, step: int) -> list[int]:
        """A host action that looks at the landing."""
        with self.device.action(name, step=step):
            return self.landing.peek().tolist()

    def holds(self) -> list[tuple[int, int]]:
        return [(hold.matched, hold.realised) for hold in self.device.finish().holds]


def _fill(k: Any, target: Any, *, value: int) -> None:
    target[...] = value


@BOTH
def test_a_copy_held_until_the_host_is_there_lands_then(pacing: Pacing) -> None:
    program = Program("d2h:value@0 until host:look@1", pacing=pacing)
    program.set(5, step=0)
    program.land(step=0)
    assert program.host("look", step=0) == [0] * ROWS
    assert program.host("look", step=1) == [0] * ROWS
    assert program.host("look", step=2) == [5] * ROWS
    assert program.holds() == [(1, 1)]


@BOTH
def test_a_held_copy_reads_what_is_there_when_it_runs(pacing: Pacing) -> None:
    program = Program("copy/d2h:value@0 until kernel:set@1", pacing=pacing)
    program.set(5, step=0)
    program.land(step=0, stream=program.copy)
    assert program.host("look", step=0) == [0] * ROWS
    program.set(6, step=1)
    program.host("look", step=1)  # any call of the device takes note of what has completed
    assert program.host("look", step=2) == [6] * ROWS
    assert program.holds() == [(1, 1)]


@BOTH
def test_a_wait_opens_what_it_needs_and_says_that_the_hold_was_not_kept(pacing: Pacing) -> None:
    program = Program("d2h:value@0 until host:never@9", "kernel:set@1 until forced", pacing=pacing)
    program.set(5, step=0)
    program.land(step=0, stream=program.copy)
    program.set(6, step=1)
    program.device.wait_host(program.landed, EDGE, step=0)
    assert program.landing.peek().tolist() == [5] * ROWS
    assert program.device.pending() == ("kernel:set@1",)
    assert program.holds() == [(1, 0), (1, 1)]


@BOTH
def test_the_cone_of_a_wait_goes_through_other_streams(pacing: Pacing) -> None:
    program = Program("kernel:set@0 until forced", pacing=pacing)
    is_set = program.device.event("set")
    program.set(5, step=0)
    program.device.record(program.main, is_set)
    program.device.wait_stream(program.copy, is_set, EDGE, step=0)
    program.land(step=0, stream=program.copy)
    assert program.host("look", step=0) == [0] * ROWS
    program.device.wait_host(program.landed, EDGE, step=0)
    assert program.landing.peek().tolist() == [5] * ROWS
    assert program.holds() == [(1, 1)]


@BOTH
def test_a_torn_copy_is_two_copies_with_a_latch_each(pacing: Pacing) -> None:
    program = Program("d2h:value@0[2:] until host:look@1", pacing=pacing)
    program.set(5, step=0)
    program.land(step=0)
    assert program.host("look", step=1) == [5, 5, 0, 0]
    assert program.host("look", step=2) == [5] * ROWS
    assert program.holds() == [(1, 1)]


def test_left_to_itself_only_what_a_hold_names_is_latched() -> None:
    program = Program("d2h:value@1 until host:look@3")
    for step in range(4):
        program.set(step, step=step)
        program.land(step=step)
        program.host("look", step=step)
    assert program.driver.latched == 1
    assert program.holds() == [(1, 1)]


def test_paced_eagerly_what_stands_behind_a_held_operation_follows_in_turn() -> None:
    program = Program("kernel:set@0 until host:look@0", pacing=Pacing.EAGER)
    program.set(5, step=0)
    program.land(step=0)
    assert program.driver.latched == 2
    program.host("look", step=0)
    assert program.host("look", step=1) == [5] * ROWS


@BOTH
def test_a_query_knows_what_a_hold_keeps_and_what_its_point_lets_go(pacing: Pacing) -> None:
    program = Program("kernel:set@0 until host:look@0", pacing=pacing)
    done = program.device.event("done")
    assert program.device.query(done, step=0)  # there is nothing to wait for
    program.set(5, step=0)
    program.device.record(program.main, done)
    assert not program.device.query(done, step=0)
    program.host("look", step=0)
    assert program.device.query(done, step=0)
    events = program.device.finish().events
    assert sum(isinstance(event, Queried) for event in events) == 2


@pytest.mark.parametrize("seed", range(6))
def test_a_host_that_only_queries_comes_to_its_end(seed: int) -> None:
    """What a point let go while other work stood before it is let go once that has ended."""
    program = Program("kernel:set@1 until host:look@1", driver=SyncDriver(random=Random(seed)))
    done = program.device.event("done")
    for step in range(2):
        program.set(5, step=step)
    program.device.record(program.main, done)
    assert not program.device.query(done, step=1)
    program.host("look", step=1)
    assert any(program.device.query(done, step=1) for _ in range(50))
    program.device.finish()


def test_no_hold_is_realised_less_than_never(monkeypatch: pytest.MonkeyPatch) -> None:
    """Latches that nobody confirms may be more than those that were let go at their points."""
    program = Program("kernel:set@0 until host:look@0", pacing=Pacing.NATURAL)
    text = "kernel:set@0 until host:look@0"
    monkeypatch.setattr(Latches, "unconfirmed", lambda self: {text: 3})
    program.set(5, step=0)
    program.host("look", step=0)
    (hold,) = program.device.finish().holds
    assert (hold.matched, hold.realised) == (1, 0)


class Broken(SyncDriver):
    """Its streams do not wait for words."""

    def wait_word(self, stream: SyncStream, words: np.ndarray, index: int) -> None:
        pass


@BOTH
def test_without_evidence_of_the_device_no_hold_is_realised(pacing: Pacing) -> None:
    program = Program("d2h:value@0 until host:look@1", pacing=pacing, driver=Broken())
    program.set(5, step=0)
    program.land(step=0)
    program.host("look", step=1)
    assert program.holds() == [(1, 0)]


@BOTH
def test_the_watchdog_ends_a_wait_that_the_queues_do_not_know(pacing: Pacing) -> None:
    # The host is caught in a call that waits for the whole device.
    driver = SyncDriver(may_block=True)
    holds = ("d2h:value@0 until host:look@1", "d2h:value@1 until host:look@1")
    program = Program(*holds, pacing=pacing, driver=driver, patience_s=0.05)
    program.set(5, step=0)
    program.land(step=0)
    driver.drain()
    assert program.device.has_expired
    assert program.landing.peek().tolist() == [5] * ROWS
    program.set(6, step=1)
    program.land(step=1)
    driver.drain()
    program.host("look", step=1)
    assert program.holds() == [(1, 0), (1, 0)]


def test_such_a_wait_without_a_watchdog_would_not_end() -> None:
    program = Program("d2h:value@0 until host:look@1")
    program.set(5, step=0)
    program.land(step=0)
    with pytest.raises(StuckError):
        program.driver.drain()
    program.device.close()


@BOTH
def test_a_run_that_is_stopped_leaves_nothing_latched(pacing: Pacing) -> None:
    program = Program("* until host:never@9", pacing=pacing)
    flag = program.device.flag("go")
    program.set(5, step=0)
    program.device.wait_flag(program.main, flag)
    program.land(step=0)
    with pytest.raises(DeadlockError, match="behind the flag go"):
        program.device.wait_host(program.landed, EDGE, step=0)
    program.device.close()
    program.driver.begin()  # would be stuck


@BOTH
def test_a_replayed_graph_is_held_as_a_whole(pacing: Pacing) -> None:
    program = Program("graph:twice@0 until host:look@0", pacing=pacing)
    with program.device.capture(program.main, "twice") as graph:
        program.set(1, step=-1)
        program.set(2, step=-1)
    program.set(5, step=0)
    program.device.replay(program.main, graph, step=0, masks={})
    program.land(step=0, stream=program.copy)
    assert program.host("look", step=0) == [5] * ROWS
    program.land(step=1)
    program.device.wait_host(program.landed, EDGE, step=1)
    assert program.landing.peek().tolist() == [2] * ROWS
    assert program.holds() == [(1, 1)]


@BOTH
def test_freed_memory_is_poison_in_stream_order_and_goes_to_the_same_stream(pacing: Pacing) -> None:
    program = Program("free:value@0 until host:look@0", pacing=pacing)
    program.set(5, step=0)
    snapshot = program.device.snapshot(program.main, [(program.value, 2)])
    old = program.value.storage
    program.device.free(program.value, step=0)
    elsewhere = program.device.device_buffer("other", (ROWS,), np.int32, stream=program.copy)
    again = program.device.device_buffer("value", (ROWS,), np.int32, stream=program.main)
    assert again.storage is old and elsewhere.storage is not old
    program.host("look", step=0)
    program.device.finish()
    assert snapshot.arrays()[0].tolist() == [5, 5]
    assert old.tensor.tolist() == [0x7F7F7F7F] * ROWS


class Idle(Random):
    """Lets a driver do nothing but what the host waits for."""

    def choice(self, seq: Sequence[Any]) -> Any:
        return seq[0]


def test_what_happens_while_its_cone_is_forced_is_not_taken_for_what_stands_behind() -> None:
    # The host waits for `last`, which waits for the held `first`. Asked to let go of it, the
    # pending queues see its point complete, and with it everything up to the event.
    lanes = ("main", "copy", "side")
    hold = parse_schedule(["kernel:first@0 until kernel:point@0"])
    driver = SyncDriver(random=Idle())
    device = CudaDevice(lanes, driver, pace=Pace(Pacing.NATURAL), chooser=HoldChooser(hold))
    main, copy, side = (device.stream(lane) for lane in lanes)
    cells = device.device_buffer("cells", (ROWS,), np.int32, stream=main)
    middle, last = device.event("middle"), device.event("last")

    def launch(stream: Stream, name: str, value: int) -> None:
        device.launch(stream, _fill, name, step=0, uses=(writes(cells),), value=value)

    launch(main, "first", 1)
    device.record(main, middle)
    device.wait_stream(copy, middle, EDGE, step=0)
    launch(copy, "second", 2)
    device.record(copy, last)
    launch(copy, "behind", 3)
    launch(side, "point", 4)
    device.wait_host(last, EDGE, step=0)
    (outcome,) = device.finish().holds
    assert (outcome.matched, outcome.realised) == (1, 1)
    assert cells.storage.tensor.tolist() == [3] * ROWS
