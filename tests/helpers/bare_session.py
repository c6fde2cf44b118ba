"""Sessions without a CUDA runtime: what is issued and logged is what a test says."""

from __future__ import annotations

import threading

from racegate.history.schedule import Hold
from racegate.interpose.device.guards import SetPages
from racegate.interpose.device.library import GivenWork
from racegate.interpose.device.queue import Queue
from racegate.interpose.device.session import Session
from racegate.interpose.outcome import Plan
from racegate.targets.common.inside.listener import EngineListener
from racegate.targets.common.inside.session import EngineSession


def no_pages(low: int, high: int, *, mode: int) -> bool:
    return False


class NoRuntime:
    """Nothing is logged. guard: what closes pages; nothing can, if it is not given"""

    lands_at_once = True

    def __init__(self, guard: SetPages = no_pages) -> None:
        self._guard = guard
        self.work = GivenWork()

    def take_in(self, session: Session) -> None:
        """There is no log."""

    def guard(self, low: int, high: int, *, mode: int) -> bool:
        return self._guard(low, high, mode=mode)

    def thread_number(self) -> int:
        return threading.get_ident()

    def settle_event(self, event: int, version: int) -> None:
        """There is no allocator."""


def engine_session(
    *holds: Hold, is_recording: bool = True, guard: SetPages = no_pages
) -> EngineSession:
    """The session of an engine under holds."""
    listener = EngineListener()
    session = Session(NoRuntime(guard), listener=listener)
    session.begin(Queue(holds), is_recording=is_recording)
    return EngineSession(session, listener)


def engine_session_under(plan: Plan) -> EngineSession:
    """Likewise under a plan."""
    return engine_session(*plan.holds, is_recording=plan.is_recording)
