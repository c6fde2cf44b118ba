"""What stands in the queues of the virtual device: operations, records, waits, flags."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np

from racegate.device.chooser import Ticket
from racegate.device.recorder import Version
from racegate.device.stepping import Step


class VirtualStream:
    """First in, first out; what stands in the queue has been issued and has not run."""

    __slots__ = ("index", "lane", "queue")

    def __init__(self, lane: str, index: int) -> None:
        self.lane = lane
        self.index = index
        self.queue: deque[Node] = deque()


class VirtualEvent:
    """An event; each record makes a new version, a wait binds to the latest."""

    __slots__ = ("latest", "name", "records")

    def __init__(self, name: str) -> None:
        self.name = name
        self.records = 0
        self.latest: Version | None = None


class VirtualFlag:
    """A word the host sets; a stream that waits for it stops until then."""

    __slots__ = ("_on_set", "is_set", "name")

    def __init__(self, name: str, on_set: Callable[[], None]) -> None:
        self.name = name
        self.is_set = False
        self._on_set = on_set

    def set(self) -> None:
        self.is_set = True
        self._on_set()


class VirtualSnapshot:
    """Copies of device memory, made when the stream got there."""

    __slots__ = ("_arrays",)

    def __init__(self) -> None:
        self._arrays: list[np.ndarray] | None = None

    @property
    def is_done(self) -> bool:
        return self._arrays is not None

    def arrays(self) -> list[np.ndarray]:
        assert self._arrays is not None, "the stream has not got here"
        return self._arrays

    def fill(self, arrays: list[np.ndarray]) -> None:
        self._arrays = arrays


class Op:
    """Something to run. name: empty for what is not part of the program (snapshots);
    step: set when a stepper decides.
    """

    __slots__ = ("name", "run", "step", "ticket")

    def __init__(
        self,
        name: str,
        run: Callable[[], None],
        ticket: Ticket | None,
        *,
        step: Step | None = None,
    ) -> None:
        self.name = name
        self.run = run
        self.ticket = ticket
        self.step = step


Node = Op | Version | tuple[Version] | VirtualFlag  # a one-tuple is a wait for that version
