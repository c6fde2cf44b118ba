"""Where ranks meet: collectives, told apart by their number alone, as NCCL tells them.

A rank's part is two operations on its compute stream: `send` puts its values where all can read
them, and the other takes them from there, once every rank has sent. Two places, used in turn, are
enough: a rank that comes to its next but one collective knows that all have taken this one's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from numpy.typing import DTypeLike

from racegate.device.protocol import DeviceBuffer, MeetingDevice, Stream, Version
from racegate.engine.state.edges import PARTS_SENT
from racegate.history.trace import rank_suffix

PLACES = 2


class MismatchError(Exception):
    """Ranks issue different collectives where one is meant: names the number and both."""


class Collective(NamedTuple):
    """What a rank issues. place: where in a step, which nobody compares; rows: that are sent"""

    kind: str
    place: str
    step: int
    rows: int

    def is_like(self, other: Collective) -> bool:
        """Whether the two pair."""
        return (self.kind, self.rows) == (other.kind, other.rows)

    @property
    def text(self) -> str:
        """In words."""
        return f"{self.kind} of {self.rows} rows for {self.place} in step {self.step}"


# What the ranks of a collective read, used in turn: [ranks, ...] each, a row for what each sends.
Places = tuple[DeviceBuffer, ...]


class Communicator:
    """The collectives of all ranks. streams: the compute stream of each"""

    def __init__(self, device: MeetingDevice, streams: Sequence[Stream]) -> None:
        self._device = device
        self.streams = tuple(streams)
        self._issued: list[list[Collective]] = [[] for _ in streams]
        self._arrivals: list[tuple[Version, ...]] = []
        self._places: dict[str, Places] = {}

    @property
    def ranks(self) -> int:
        """How many there are."""
        return len(self.streams)

    def places(self, name: str, shape: tuple[int, ...], dtype: DTypeLike) -> Places:
        """Those for values of a shape, the same for each rank that asks."""
        if name not in self._places:
            made = []
            for number in range(PLACES):
                whole = (self.ranks, *shape)
                made.append(
                    self._device.meeting_place(f"{name}.{number}", whole, dtype, PARTS_SENT)
                )
            self._places[name] = tuple(made)
        return self._places[name]

    def join(self, rank: int, collective: Collective) -> int:
        """The number of a rank's next collective. Raises MismatchError."""
        number = len(self._issued[rank])
        self._issued[rank].append(collective)
        if number == len(self._arrivals):
            self._arrivals.append(tuple(self._arrival(number, s) for s in self.streams))
        for other, issued in enumerate(self._issued):
            if len(issued) > number and not collective.is_like(issued[number]):
                raise MismatchError(
                    f"collective {number}: rank {rank} issues {collective.text}, rank {other} "
                    f"{issued[number].text}; let all ranks decide by what all of them know"
                )
        return number

    def _arrival(self, number: int, stream: Stream) -> Version:
        suffix = rank_suffix(stream.lane)
        name = f"collective{suffix}"
        return Version(event=name, number=number, lane=stream.index, clock=())

    def arrive(self, rank: int, number: int) -> None:
        """The rank has sent."""
        self._device.arrive(self.streams[rank], self._arrivals[number][rank])

    def wait(self, rank: int, number: int, *, step: int) -> None:
        """The rank's stream goes on when all others have sent."""
        for other, arrival in enumerate(self._arrivals[number]):
            if other != rank:
                self._device.wait_arrival(self.streams[rank], arrival, PARTS_SENT, step=step)


class Seat(NamedTuple):
    """One rank's place in a communicator."""

    communicator: Communicator
    rank: int
