"""What ranks and the process that matches their collectives tell each other."""

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from enum import StrEnum
from typing import Any

import msgspec

from racegate.history.finding import Stack
from racegate.interpose.ranks.group.collectives import GroupOperation
from racegate.interpose.ranks.group.orders import RankOrder

_SIZE = struct.Struct("<Q")


class WaiterKind(StrEnum):
    """Who of a rank waits. HOST: a thread; QUERY: a thread that asks, and goes on with "not ready";
    END: the device alone, behind the end of the script.
    """

    HOST = "host"
    QUERY = "query"
    END = "end"


class Message(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Of either side."""


class HelloMessage(Message, frozen=True, kw_only=True):
    """A process that the program started is to have a device. rank: as its environment has it;
    None: it has none
    """

    rank: int | None


class SeatMessage(Message, frozen=True, kw_only=True):
    """What a process is to do that said hello. place: which of all processes it is; job: as JSON"""

    place: int
    job: bytes


class JoinMessage(Message, frozen=True, kw_only=True):
    """A rank makes a communicator. rank, ranks: its own there; name: torch's, or none; gpu: its own

    whole: which rank of the program it is, as torch says, or as this communicator does
    thread, stack, others: of who waits until all have come, as of a WaitMessage; thread 0: nobody
    """

    comm: int
    rank: int
    ranks: int
    name: str
    gpu: str = ""
    whole: int = 0
    thread: int = 0
    stack: Stack = ()
    others: tuple[int, ...] = ()


class IssueMessage(Message, frozen=True, kw_only=True):
    """Operations that complete together were put on a stream. numbers: of each on its
    communicator, or between its two ranks
    """

    node: int
    label: str
    stack: Stack
    operations: tuple[GroupOperation, ...]
    numbers: tuple[int, ...]


class PostMessage(Message, frozen=True, kw_only=True):
    """Nothing comes before these operations any more. data: what each gives"""

    node: int
    data: tuple[bytes, ...]


class NeedMessage(Message, frozen=True, kw_only=True):
    """The device cannot go on to what another rank waits for without these."""

    node: int


class WaitMessage(Message, frozen=True, kw_only=True):
    """A thread waits for these operations. others: the threads of Python that may yet do something,
    as the kernel numbers them
    """

    thread: int
    node: int
    kind: WaiterKind
    stack: Stack
    others: tuple[int, ...]


class SplitMessage(Message, frozen=True, kw_only=True):
    """A thread waits until all ranks of a communicator have said their colour. number: of how many
    splits it is this one
    """

    thread: int
    comm: int
    rank: int
    number: int
    colour: int
    key: int
    stack: Stack
    others: tuple[int, ...]


class EndMessage(Message, frozen=True, kw_only=True):
    """The script is over. how: in words"""

    how: str


class DrainMessage(Message, frozen=True, kw_only=True):
    """The rank has said all that it has to say; its device stays for the others."""

    order: RankOrder


class ThreadPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where a thread stands. is_in_group: in a call of torch.distributed, which waits for others;
    is_launching: it waits for processes that it has started as ranks
    """

    stack: Stack
    is_in_group: bool
    is_launching: bool = False


class StandMessage(Message, frozen=True, kw_only=True):
    """Where the threads of Python stand that may yet do something, as the kernel numbers them."""

    threads: dict[int, ThreadPlace]


class DoneMessage(Message, frozen=True, kw_only=True):
    """What was said last to the rank has been done, as far as it goes."""


class WantMessage(Message, frozen=True, kw_only=True):
    """Another rank waits for these: the device is to come to them."""

    node: int


class ResultMessage(Message, frozen=True, kw_only=True):
    """All ranks have come. data: what each of the operations gives this rank"""

    node: int
    data: tuple[bytes, ...]


class NotReadyAnswer(Message, frozen=True, kw_only=True):
    """Nobody can go on: who asks is told that it is not complete yet."""

    thread: int


class JoinAnswer(Message, frozen=True, kw_only=True):
    """All ranks have come to the communicator. shared: a GPU that two of them have, or none"""

    thread: int
    shared: str = ""


class SplitAnswer(Message, frozen=True, kw_only=True):
    """All have said their colour. comm, rank, ranks: of the new communicator; 0 of none"""

    thread: int
    comm: int
    rank: int
    ranks: int


class WhereQuery(Message, frozen=True, kw_only=True):
    """Where do the threads stand?"""


class StopMessage(Message, frozen=True, kw_only=True):
    """The run is over: what was found until now is told, and the process ends."""


class DismissMessage(Message, frozen=True, kw_only=True):
    """All ranks have ended, and nobody needs this one any more."""


Up = (
    HelloMessage
    | JoinMessage
    | IssueMessage
    | PostMessage
    | NeedMessage
    | WaitMessage
    | SplitMessage
    | EndMessage
    | DrainMessage
    | StandMessage
    | DoneMessage
)
Down = (
    SeatMessage
    | WantMessage
    | ResultMessage
    | NotReadyAnswer
    | JoinAnswer
    | SplitAnswer
    | WhereQuery
    | StopMessage
    | DismissMessage
)


class RankLink:
    """One end of a connection: messages in the order in which they were sent.

    has_unsent: what was posted has not all left
    """

    def __init__(self, end: socket.socket, kind: Any) -> None:
        """kind: of the messages that come"""
        self._end = end
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(kind).decode
        self._unsent = bytearray()

    def fileno(self) -> int:
        """For `select`."""
        return self._end.fileno()

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent)

    def send(self, message: Message) -> None:
        """Returns when it has left. If the other end is gone, it is lost, which reading shows."""
        with suppress(OSError):
            self._end.sendall(self._frame(message))

    def post(self, message: Message) -> None:
        """Returns at once; `flush` sends what has not left."""
        self._unsent += self._frame(message)
        self.flush()

    def flush(self) -> None:
        """Sends as much as leaves at once."""
        while self._unsent:
            try:
                sent = self._end.send(self._unsent, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError:
                self._unsent.clear()
                return
            del self._unsent[:sent]

    def receive(self) -> Any:
        """The next message; None if the other end is gone."""
        size = self._read(_SIZE.size)
        if size is None:
            return None
        data = self._read(_SIZE.unpack(size)[0])
        return None if data is None else self._decode(data)

    def close(self) -> None:
        """This end."""
        self._end.close()

    def _frame(self, message: Message) -> bytes:
        data = self._encode(message)
        return _SIZE.pack(len(data)) + data

    def _read(self, size: int) -> bytes | None:
        parts = bytearray(size)
        view, have = memoryview(parts), 0
        while have < size:
            try:
                got = self._end.recv_into(view[have:])
            except OSError:
                return None
            if not got:
                return None
            have += got
        return bytes(parts)
