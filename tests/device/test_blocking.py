"""A device that is drained behind every operation: which calls it makes of one."""

from __future__ import annotations

from typing import Any

import pytest

from racegate.device.blocking import DRAINED, ISSUING, BlockingDevice

LANES = ("main", "copy")


class Noted:
    """A device that notes its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def stream(self, lane: str) -> str:
        return f"stream {lane}"

    def event(self, name: str) -> str:
        return f"event {name}"

    def __getattr__(self, name: str) -> Any:
        return lambda *handles, **rest: self.calls.append((name, handles, rest))


@pytest.mark.parametrize("name", sorted(ISSUING))
def test_behind_what_issues_every_stream_is_recorded_and_waited_for(name: str) -> None:
    noted = Noted()
    getattr(BlockingDevice(noted, LANES), name)("a", "b", step=3, rows=2)  # type: ignore[arg-type]
    drained = [
        call
        for lane in LANES
        for call in (
            ("record", (f"stream {lane}", f"event drained:{lane}"), {}),
            ("wait_host", (f"event drained:{lane}", DRAINED), {"step": 3}),
        )
    ]
    assert noted.calls == [(name, ("a", "b"), {"step": 3, "rows": 2}), *drained]


@pytest.mark.parametrize("name", ["record", "wait", "query", "finish"])
def test_everything_else_is_the_devices_own(name: str) -> None:
    noted = Noted()
    getattr(BlockingDevice(noted, LANES), name)("a")  # type: ignore[arg-type]
    assert noted.calls == [(name, ("a",), {})]
