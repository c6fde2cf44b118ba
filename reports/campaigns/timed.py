"""What a campaign's parts take: workers that write down their times, and a clock at the driver."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any
from unittest import mock

from racegate.jobs.generated import CampaignSpec, Report, ScenarioWorker


class TimedWorker(ScenarioWorker):
    """Writes down how long each scenario took. log: where, with the number of its process"""

    def __init__(self, spec: CampaignSpec, known: frozenset[str], log: str) -> None:
        super().__init__(spec, known)
        self._log = log

    def work(self, task: Any) -> Any:
        began = time.perf_counter()
        answer = super().work(task)
        with open(f"{self._log}.{os.getpid()}", "a") as file:
            file.write(f"{time.perf_counter() - began}\n")
        return answer


def make_timed(log: str, spec: CampaignSpec, known: frozenset[str], number: int) -> TimedWorker:
    """See fuzz.make_worker."""
    return TimedWorker(spec, known, log)


class Clock:
    """Durations by what took them, and when answers of scenarios were heard, by whom."""

    def __init__(self) -> None:
        self.durations: dict[str, list[float]] = defaultdict(list)
        self.heard: list[tuple[float, int]] = []
        self._began: dict[int, float] = {}
        self._is_saved = False

    def timed(self, owner: type, name: str, what: str) -> Any:
        """A patch."""
        original: Callable[..., Any] = getattr(owner, name)

        def call(*given: Any) -> Any:
            began = time.perf_counter()
            try:
                return original(*given)
            finally:
                self.durations[what].append(time.perf_counter() - began)
                self._is_saved = True

        return mock.patch.object(owner, name, call)

    def hearing(self, owner: type) -> Any:
        """A patch: from here to the next task that is sent to the same worker is an event."""
        original: Callable[..., Any] = owner.hear

        def call(handle: Any) -> Any:
            began = time.perf_counter()
            said = original(handle)
            if isinstance(said, Report | int):
                self._began[id(handle)] = began
                self._is_saved = False
                self.heard.append((time.perf_counter(), id(handle)))
            return said

        return mock.patch.object(owner, "hear", call)

    def sending(self, owner: type) -> Any:
        """A patch."""
        original: Callable[..., Any] = owner.send

        def call(handle: Any, task: Any) -> None:
            original(handle, task)
            began = self._began.pop(id(handle), None)
            if began is not None and not self._is_saved:
                self.durations["event"].append(time.perf_counter() - began)

        return mock.patch.object(owner, "send", call)

    @property
    def rate(self) -> float:
        """As the simulation counts: from the moment each worker has answered once."""
        seen: set[int] = set()
        for number, (at, handle) in enumerate(self.heard):
            seen.add(handle)
            if len(seen) == len({handle for _, handle in self.heard}):
                left = len(self.heard) - number - 1
                return left / (self.heard[-1][0] - at)
        raise ValueError("nothing was heard")
