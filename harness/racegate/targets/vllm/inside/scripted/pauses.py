"""Pauses: what a client that exchanges weights asks for while steps are in flight."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from racegate.scenario.spec import Caches, Pause
from racegate.targets.common.inside.serve import NotTaken


class Pauses:
    """Pauses the engine of a run and lets it go on, between two turns of its loop.

    given_back: for how long nobody else has blocks, so that the pool can be cleared
    Raises NotTaken if the release cannot be paused with its requests kept.
    """

    def __init__(
        self,
        engine: Any,
        counters: Counter[str],
        asked: Sequence[Pause],
        given_back: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        if asked and "mode" not in inspect.signature(engine.sleep).parameters:
            raise NotTaken("this release cannot be paused with its requests kept")
        self._engine, self._counters, self._given_back = engine, counters, given_back
        self._asked = sorted(asked, key=lambda one: one.step)
        self._turns_left = 0

    def between_turns(self, step: int) -> None:
        """A turn has ended, and the next one has not begun. step: the last one that was issued"""
        if self._turns_left:
            self._turns_left -= 1
            if not self._turns_left:
                self._engine.wake_up(["scheduling"])
        elif self._asked and self._asked[0].step < step:
            self._pause(self._asked.pop(0))

    def _pause(self, asked: Pause) -> None:
        in_flight = bool(self._engine.engine_core.engine_core.batch_queue)
        self._counters["pauses_in_flight"] += in_flight
        self._turns_left = asked.turns
        if asked.turns:
            self._engine.sleep(level=0, mode="keep")
        if asked.caches is Caches.CLEARED:
            with self._given_back():
                self._engine.reset_prefix_cache(reset_running_requests=True)
