"""What stands in the queues of a device: operations, records, waits, flags.

Each says whether it is held, so that whoever empties a queue asks no other question.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable

from racegate.device.chooser import Ticket
from racegate.device.recorder import Version
from racegate.device.stepping import Transition
from racegate.history.trace import rank_suffix


class Stream:
    """First in, first out; what stands in the queue was issued and may not have happened.

    lane: its name; index: its number in the trace, from 1
    suffix: of its rank, where there are several: the names of what it does end with that
    """

    __slots__ = ("index", "lane", "queue", "suffix")

    def __init__(self, lane: str, index: int) -> None:
        self.lane = lane
        self.suffix = rank_suffix(lane)
        self.index = index
        self.queue: deque[Node] = deque()


class Event:
    """An event; each record makes a new version, a wait binds to the latest.

    handle: the driver's, on a device that has one
    """

    __slots__ = ("handle", "latest", "name", "records")

    def __init__(self, name: str, handle: object = None) -> None:
        self.name = name
        self.handle = handle
        self.records = 0
        self.latest: Version | None = None

    def add(self, version: Version) -> None:
        """It was recorded once more."""
        self.records += 1
        self.latest = version


class Flag:
    """A word that the host sets once; a stream that waits for it stops until then (a latch, an
    external signal).

    on_set: called when it has been set
    """

    __slots__ = ("_on_set", "is_set", "name")

    def __init__(self, name: str, on_set: Callable[[], None]) -> None:
        self.name = name
        self.is_set = False
        self._on_set = on_set

    @property
    def is_held(self) -> bool:
        """Whether a stream that got here has to stay."""
        return not self.is_set

    def set(self) -> None:
        """Lets whatever waits for it go on."""
        self.is_set = True
        self._on_set()


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
        step: Transition | None = None,
    ) -> None:
        self.name = name
        self.run = run
        self.ticket = ticket
        self.step = step

    @property
    def is_held(self) -> bool:
        """Whether a hold keeps it, or a stepper that has not chosen it."""
        return self.step is not None or (self.ticket is not None and self.ticket.is_held)


class Wait:
    """A stream waits for a version."""

    __slots__ = ("version",)

    def __init__(self, version: Version) -> None:
        self.version = version

    @property
    def is_held(self) -> bool:
        """Whether the version is not complete."""
        return not self.version.is_done


# A version stands for its record.
Node = Op | Version | Wait | Flag


def told_apart(node: Node) -> Hashable:
    """What tells a node from others that a program puts into the same place of a queue."""
    match node:
        case Op():
            return node.name
        case Version():
            return (node.event, node.number)
        case Wait():
            return (node.version.event, node.version.number, "wait")
        case Flag():
            return (node.name, node.is_set)


def is_unheld(node: Node) -> bool:
    """Whether nothing keeps the head of a queue from happening."""
    return not node.is_held
