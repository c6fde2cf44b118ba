"""A small engine with planted races, on the session of the real ones: persistent rows, a copy of
accepted counts to the host, a moved row, an upload of counts. It needs no torch and no vLLM.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

import msgspec

from bare_session import engine_session_under
from racegate.history.recorded.log import RecordedRun
from racegate.interpose.device.session import Session
from racegate.interpose.device.spans import Place
from racegate.interpose.outcome import Ending, Observation, Plan
from racegate.order.findings import race_of
from racegate.scenario.spec import Scenario
from racegate.targets.common.inside.session import EngineSession
from racegate.targets.common.wire import Observed, ReleaseRun, Wrong

HOST, DEVICE, ITEM = 0x10000, 0x20000, 4
DEFAULT, SIDE = 0, 7
EVENT = 99


class Wait(StrEnum):
    """Where the host waits for the copy of counts: before the move of the row, behind it; behind
    it, but the value that was moved is not used.
    """

    BEFORE = "before"
    BEHIND = "behind"
    DEAD = "dead"


class SmallEngine:
    """One step: counts come down, row 1 moves to row 0, its count is used.

    on_session: given each run's session, before its step
    """

    def __init__(self, wait: Wait, *, true: int = 1, last: int = 4) -> None:
        self.wait = wait
        self.true, self.last = true, last
        self.host = [9, 9]
        self.device = [last, true]
        self.on_session: Callable[[EngineSession], None] = lambda session: None

    def run(self, plan: Plan) -> ReleaseRun:
        """As a real engine answers a task."""
        engine = engine_session_under(plan)
        session = engine.session
        steps = session.recorder.keep_log()
        session.memory_added(HOST, 64, Place.PINNED, is_whole_pages=False)
        session.memory_added(DEVICE, 64, Place.DEVICE)
        engine.listener.name_buffers(
            [(HOST, HOST + 64, "counts.cpu"), (DEVICE, DEVICE + 64, "counts")]
        )
        self.host = [9, 9]
        self.on_session(engine)
        used = self._step(session)
        session.queue.force_all()
        if plan.log:
            recorder = session.recorder
            log = RecordedRun(recorder.lanes.all_names(), tuple(steps.steps))
            Path(plan.log).write_bytes(msgspec.json.encode(log))
        wrong = (
            () if used == self.true else (Wrong(step=1, what="count", used=used, true=self.true),)
        )
        recorder = session.recorder
        findings = tuple(
            race_of(conflict, recorder.lanes, buffer="counts.cpu")
            for conflict in recorder.conflicts.values()
        )
        return ReleaseRun(
            ending=Ending.FINISHED,
            findings=findings,
            events=recorder.events,
            observations=(Observation("used", str(used), str(used)),),
            realised=session.queue.realised,
            steps=1,
            delivered={"A": (5,)},
            plain={"A": (5,)},
            wrong=wrong,
            counters={"reorder_moves": 1},
            gaps={held: tuple(labels) for held, labels in engine.listener.gaps.items()},
        )

    def _step(self, session: Session) -> int:
        cells = ((HOST, HOST + 2 * ITEM),)

        def land() -> None:
            self.host[:] = self.device

        session.issue("d2h", DEFAULT, ((DEVICE, DEVICE + 2 * ITEM),), cells, land)
        session.event_recorded(EVENT, DEFAULT, 1, threading.get_ident())
        if self.wait is Wait.BEFORE:
            session.wait_event(EVENT)
        self.move_row(session)
        session.wait_event(EVENT)
        return self.true if self.wait is Wait.DEAD else self.take_count(session)

    def move_row(self, session: Session) -> None:
        """Row 1 becomes row 0; row 0 gets the new request's 1."""
        session.host_access("host read", ((HOST + ITEM, HOST + 2 * ITEM),), ())
        count = self.host[1]
        session.host_access("host write", (), ((HOST, HOST + ITEM),))
        self.host[0] = count

    def take_count(self, session: Session) -> int:
        session.host_access("host read", ((HOST, HOST + ITEM),), ())
        return self.host[0]


class Served:
    """A small engine as the judge sees a real one. told: what it answers whatever is asked"""

    def __init__(self, engine: SmallEngine, told: ReleaseRun | None = None) -> None:
        self.engine = engine
        self.told = told
        self.plans: list[Plan] = []

    def run(self, scenario: Scenario, plan: Plan, *, plant: Observed | None = None) -> ReleaseRun:
        """As `Engine.run` of the client. Nothing can be planted in it."""
        self.plans.append(plan)
        return self.told if self.told is not None else self.engine.run(plan)
