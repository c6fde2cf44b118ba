"""Replays under holds that name a part: parts run late, never before what the graph puts first."""

from __future__ import annotations

import threading

import pytest

from bare_session import NoRuntime
from racegate.history.schedule import Hold
from racegate.interpose.device.host_threads import HeldThreads
from racegate.interpose.device.queue import Queue
from racegate.interpose.device.session import Session
from racegate.interpose.device.spans import Place

MAIN, SIDE, OTHER, EVENT = 0, 5, 6, 9
# Bytes of one allocation.
READ, WRITTEN, LEFT = ((1 << 20 | low, 1 << 20 | low + 8) for low in (0, 8, 16))


class Captured:
    """One graph: `fill` on the main stream, `copy` on a side stream, forked before or after it."""

    def __init__(self, *, forked_after: bool) -> None:
        self.session = Session(NoRuntime())
        self.graphs = self.session.graphs
        self.ran: list[str] = []
        self.graphs.begin(1)
        if forked_after:
            self._add("fill", MAIN)
        self.graphs.record(1, EVENT, MAIN)
        self.graphs.wait(1, EVENT, SIDE)
        if not forked_after:
            self._add("fill", MAIN)
        self._add("copy", SIDE)
        self.graphs.end(1)
        self.graphs.launch(1, MAIN)
        ((self.whole, (self.fill, self.copy)),) = self.session.parts.items()
        self.ran.clear()

    def _add(self, name: str, stream: int) -> None:
        assert self.graphs.add(1, name, stream, (), (), lambda: self.ran.append(name))

    def replay(self, *holds: Hold) -> list[str]:
        self.session.begin(Queue(holds))
        self.graphs.launch(1, MAIN)
        return self.ran


def test_without_a_hold_parts_run_as_captured() -> None:
    assert Captured(forked_after=False).replay() == ["fill", "copy"]


def test_a_held_part_runs_behind_a_branch_that_does_not_wait_for_it() -> None:
    captured = Captured(forked_after=False)
    assert captured.replay(Hold(op=captured.fill)) == ["copy"]
    captured.session.wait_stream(MAIN)
    assert captured.ran == ["copy", "fill"]


def test_what_the_graph_orders_stays_ordered() -> None:
    captured = Captured(forked_after=True)
    assert captured.replay(Hold(op=captured.fill)) == []
    captured.session.synchronize_gpu(0)
    assert captured.ran == ["fill", "copy"]


def test_a_hold_ends_at_a_part() -> None:
    captured = Captured(forked_after=False)
    assert captured.replay(Hold(op=captured.fill, until=captured.copy)) == ["fill", "copy"]
    assert captured.session.queue.realised == {f"{captured.fill} until {captured.copy}": 1}


@pytest.mark.parametrize(("stream", "waits"), [(MAIN, True), (OTHER, False)])
def test_what_comes_behind_the_replay_waits_for_all_of_it(
    stream: int,
    waits: bool,  # noqa: FBT001
) -> None:
    captured = Captured(forked_after=False)
    captured.replay(Hold(op=captured.fill))
    captured.session.issue("next", stream, (), (), lambda: captured.ran.append("next"))
    assert captured.ran == (["copy"] if waits else ["copy", "next"])


@pytest.mark.parametrize(
    ("touched", "is_write", "conflicts"),
    [(READ, True, 1), (READ, False, 0), (WRITTEN, False, 1), (WRITTEN, True, 1), (LEFT, True, 0)],
)
@pytest.mark.parametrize("waits", [False, True])
def test_a_replay_touches_what_its_parts_touch(
    touched: tuple[int, int],
    is_write: bool,  # noqa: FBT001
    conflicts: int,
    waits: bool,  # noqa: FBT001
) -> None:
    session = Session(NoRuntime())
    session.memory_added(READ[0], LEFT[1] - READ[0], Place.DEVICE)
    graphs = session.graphs
    graphs.begin(1)
    assert graphs.add(1, "first", MAIN, (READ,), (), lambda: None)
    assert graphs.add(1, "second", MAIN, (), (WRITTEN,), lambda: None)
    graphs.end(1)
    assert not session.recorder.conflicts, "a capture runs nothing"
    graphs.launch(1, SIDE)
    if waits:
        session.event_recorded(EVENT, SIDE, 1, threading.get_ident())
        session.stream_waits(OTHER, EVENT, threading.get_ident())
    parts = ((), (touched,)) if is_write else ((touched,), ())
    session.issue("other", OTHER, *parts, None)
    assert len(session.recorder.conflicts) == (0 if waits else conflicts)


def test_a_thread_is_kept_back_until_another_waits() -> None:
    held, passed = HeldThreads(), threading.Event()
    held.PATIENCE_S = 60.0  # type: ignore[misc]
    stopped = threading.Event()

    def access() -> None:
        stopped.set()
        held.keep_back()
        passed.set()

    thread = threading.Thread(target=access)
    thread.start()
    stopped.wait()
    assert not passed.is_set()
    while not passed.wait(0.01):
        held.let_go()
    thread.join()
