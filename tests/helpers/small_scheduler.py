"""A small scheduler with a planted race, on the session of the real ones: a forward stream writes
the state of a prefix, a schedule stream copies it into the cache, a later request begins behind it.
It needs no torch and no SGLang.
"""

from __future__ import annotations

import threading
from enum import StrEnum

from bare_session import engine_session_under
from racegate.interpose.device.session import Session
from racegate.interpose.device.spans import Place
from racegate.interpose.outcome import Ending, Observation, Plan
from racegate.order.findings import race_of
from racegate.scenario.spec import Scenario
from racegate.targets.common.wire import ReleaseRun

STATE, CACHED = 0x10000, 0x20000
SCHEDULE, FORWARD = 7, 8
BARRIER, DONE = 98, 99
NBYTES = 64
TRUE = 5


class Copied(StrEnum):
    """How the cached state is made: behind a barrier; without one; without one, but the state is
    read by nobody.
    """

    BEHIND_BARRIER = "behind barrier"
    AT_ONCE = "at once"
    UNREAD = "unread"


class SmallScheduler:
    """One chunk: its state is written, kept for the prefix, and used by the next request."""

    def __init__(self, copied: Copied) -> None:
        self.copied = copied
        self.state = self.cached = 0
        self.runs = 0

    def run(self, scenario: Scenario, plan: Plan) -> ReleaseRun:
        """As `Engine.run` of the client."""
        self.runs += 1
        self.state = self.cached = 0
        engine = engine_session_under(plan)
        session = engine.session
        for base in (STATE, CACHED):
            session.memory_added(base, NBYTES, Place.DEVICE)
        token = self._step(session)
        session.queue.force_all()
        recorder = session.recorder
        findings = tuple(
            race_of(conflict, recorder.lanes, buffer="state")
            for conflict in recorder.conflicts.values()
        )
        return ReleaseRun(
            ending=Ending.FINISHED,
            findings=findings,
            events=recorder.events,
            observations=(Observation("kept", str(self.cached), str(self.cached)),),
            realised=session.queue.realised,
            steps=1,
            delivered={request.name: (token,) for request in scenario.requests},
            gaps={held: tuple(labels) for held, labels in engine.listener.gaps.items()},
        )

    def _step(self, session: Session) -> int:
        self.write_state(session)
        if self.copied is Copied.BEHIND_BARRIER:
            session.event_recorded(BARRIER, FORWARD, 1, threading.get_ident())
            session.stream_waits(SCHEDULE, BARRIER, threading.get_ident())
        if self.copied is not Copied.UNREAD:
            self.keep_state(session)
        session.event_recorded(DONE, SCHEDULE, 1, threading.get_ident())
        session.wait_event(DONE)
        session.wait_stream(FORWARD)
        return TRUE if self.copied is Copied.UNREAD else self.cached

    def write_state(self, session: Session) -> None:
        """The forward pass."""

        def write() -> None:
            self.state = TRUE

        session.issue("kernel", FORWARD, (), ((STATE, STATE + NBYTES),), write)

    def keep_state(self, session: Session) -> None:
        """The radix cache takes a copy."""

        def copy() -> None:
            self.cached = self.state

        reads, writes = ((STATE, STATE + NBYTES),), ((CACHED, CACHED + NBYTES),)
        session.issue("kernel", SCHEDULE, reads, writes, copy)
