"""One rank, in its process: NCCL's calls become operations, and a thread of ours tells the others
how far its device is.
"""

from __future__ import annotations

import _thread
import ctypes
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import msgspec
import torch

from racegate.interpose.device.calls import Calls
from racegate.interpose.device.copies import RemadeWork
from racegate.interpose.device.library import CallKind, Library
from racegate.interpose.device.session import Session
from racegate.interpose.ranks import works
from racegate.interpose.ranks.group.collectives import GroupOperation, operations_at
from racegate.interpose.ranks.group.kinds import GROUP
from racegate.interpose.ranks.group.messages import (
    DismissMessage,
    DoneMessage,
    Down,
    DrainMessage,
    EndMessage,
    IssueMessage,
    JoinAnswer,
    JoinMessage,
    NeedMessage,
    NotReadyAnswer,
    PostMessage,
    RankLink,
    ResultMessage,
    SplitAnswer,
    SplitMessage,
    StandMessage,
    StopMessage,
    ThreadPlace,
    WaiterKind,
    WaitMessage,
    WantMessage,
    WhereQuery,
)
from racegate.interpose.ranks.group.orders import RankOrder
from racegate.interpose.ranks.queue import GroupWork
from racegate.interpose.ranks.standing import (
    is_in_group,
    is_launching,
    native_number,
    only_pins,
    own_gpu,
    rank_of_program,
)
from racegate.order.clocks import Clock
from racegate.order.ranges import merged

_SIGNED = ctypes.c_int64


@dataclass(slots=True, eq=False)
class _Waiter:
    """A thread that waits. node: for which operations, 0 for others; answer: what it was told"""

    ident: int
    node: int
    woken: Any = field(default_factory=_thread.allocate_lock)
    answer: Down | None = None

    def __post_init__(self) -> None:
        self.woken.acquire()


class Rank:
    """What a process has of the other ranks.

    link: to the process that matches; stop: ends the run with what was found; refuse: ends it with
    what nobody models; order: what its collectives order, for the end of the run
    """

    def __init__(
        self,
        link: RankLink,
        session: Session,
        *,
        stop: Callable[[], None],
        refuse: Callable[[str], None],
    ) -> None:
        self._wire = link
        self._session = session
        self._stop = stop
        self._refuse = refuse
        self.order = RankOrder()
        self._sending = _thread.allocate_lock()
        self._waiters: dict[int, _Waiter] = {}
        self._works: dict[int, GroupWork] = {}
        self._sizes: dict[int, int] = {}
        self._numbers: Counter[tuple[int, tuple[int, int], bool]] = Counter()
        self._streams: set[int] = set()
        self._nodes = 0
        self._capture_of: Callable[[int], int] = int
        self._dismissed = _thread.allocate_lock()
        self._dismissed.acquire()

    def _begin(self) -> None:
        """From now on this rank hears what it is told."""
        begun = _thread.allocate_lock()
        begun.acquire()

        def listen() -> None:
            self._session.host_threads.ours.add(threading.get_ident())
            begun.release()
            with self._session.own():
                self._listen()

        _thread.start_new_thread(listen, ())
        begun.acquire()

    def connect(self, calls: Calls, library: Library, *, gpus: int) -> None:
        """The calls of NCCL come here, and what a conflict consists of is kept for the end. gpus:
        how many there are
        """
        library.set_gpus(gpus)
        self._capture_of = library.capture_of
        torch.set_num_threads(1)  # as torchrun does: ranks share the cores
        recorder = self._session.recorder
        calls.join_ranks(self.answer)
        recorder.tell_pairs(
            lambda first, second: self.order.raced(first, second, recorder.lanes.clock(second.lane))
        )
        works.track_works(self._session, library, self._streams)
        self._begin()

    # ---- NCCL's calls

    def answer(self, kind: int, a: int, b: int, c: int, d: int, name: bytes) -> int:
        """A call of the virtual NCCL."""
        if kind == CallKind.NCCL:
            self._issue(self._operations(a, b))
        elif kind == CallKind.NCCL_JOIN:
            self._sizes[a] = c
            join = JoinMessage(comm=a, rank=b, ranks=c, name=name.decode(), gpu=own_gpu())
            whole = rank_of_program(b)
            self._join(msgspec.structs.replace(join, whole=whole), waits=bool(d))
        else:
            self._split(a, b, c, d)
        return 0

    def _operations(self, address: int, count: int) -> list[tuple[GroupOperation, int]]:
        try:
            return operations_at(address, count, self._sizes)
        except NotImplementedError as error:
            self._refuse(str(error))
            raise

    def _issue(self, operations: list[tuple[GroupOperation, int]]) -> None:
        """Collectives complete one by one, the messages of a group together."""
        messages = [one for one in operations if one[0].kind.is_point_to_point]
        groups = [[one] for one in operations if not one[0].kind.is_point_to_point]
        for group in [*groups, *([messages] if messages else [])]:
            self._give([operation for operation, _ in group], stream=group[0][1])

    def _give(self, operations: list[GroupOperation], *, stream: int) -> None:
        session, kind = self._session, operations[0].kind.word
        reads = merged([one for operation in operations for one in operation.reads])
        writes = merged([one for operation in operations for one in operation.writes])
        for low, high in writes:
            session.guards.lift(low, high)
        self._streams.add(stream)
        kind = kind if len(operations) == 1 else GROUP

        def make() -> GroupWork:
            self._nodes += 1
            return GroupWork(self._nodes, tuple(operations))

        capture = self._capture_of(stream) if session.graphs.capturing else 0
        if not session.graphs.add(capture, kind, stream, reads, writes, RemadeWork(make)):
            session.issue(kind, stream, reads, writes, make())

    def _join(self, join: JoinMessage, *, waits: bool) -> None:
        """The host waits until all ranks have come, as it does in NCCL."""
        if not waits:
            self._send(join)
            return
        session = self._session
        with session.lock:
            session.drain()
            answer = self._await(
                msgspec.structs.replace(
                    join,
                    thread=threading.get_native_id(),
                    stack=session.stack(),
                    others=self._others(),
                )
            )
        if isinstance(answer, JoinAnswer) and answer.shared:
            self._refuse(
                f"two ranks of one communicator on GPU {answer.shared}, as NCCL: give each its own "
                "(`torch.cuda.set_device(rank)`) before the first collective"
            )

    def _split(self, comm: int, rank: int, said: int, told: int) -> None:
        number, colour, key = (_SIGNED * 3).from_address(said)
        session = self._session
        with session.lock:
            session.drain()
            message = SplitMessage(
                thread=threading.get_native_id(),
                comm=comm,
                rank=rank,
                number=number,
                colour=colour,
                key=key,
                stack=session.stack(),
                others=self._others(),
            )
            answer = self._await(message)
        if isinstance(answer, SplitAnswer):
            (ctypes.c_uint64 * 3).from_address(told)[:] = [answer.comm, answer.rank, answer.ranks]

    # ---- what the queue asks

    @property
    def lock(self) -> Any:
        """That of the session, which a thread gives up while it waits."""
        return self._session.lock

    def issue(self, work: GroupWork, label: str, *, lane: int, number: int, clock: Clock) -> None:
        numbers = tuple(map(self._number, work.operations))
        self._works[work.number] = work
        self.order.issued(work.operations, numbers, lane=lane, number=number, clock=clock)
        stack = self._session.stack()
        issued = IssueMessage(
            node=work.number, label=label, stack=stack, operations=work.operations, numbers=numbers
        )
        self._send(issued)

    def post(self, work: GroupWork) -> None:
        """Nothing comes before them any more: what they give is read."""
        data = tuple(operation.data() for operation in work.operations)
        self._send(PostMessage(node=work.number, data=data))

    def ask(self, work: GroupWork) -> None:
        self._send(NeedMessage(node=work.number))

    def await_result(self, work: GroupWork, kind: WaiterKind) -> bool:
        message = WaitMessage(
            thread=threading.get_native_id(),
            node=work.number,
            kind=kind,
            stack=self._session.stack(),
            others=() if kind is WaiterKind.END else self._others(),
        )
        return isinstance(self._await(message), ResultMessage)

    def _number(self, operation: GroupOperation) -> int:
        """Of how many on its communicator, or from one rank to another, it is this one."""
        is_receive = operation.kind.is_point_to_point and bool(operation.part)
        key = (operation.comm, operation.pair, is_receive)
        self._numbers[key] += 1
        return self._numbers[key]

    # ---- the end

    def end(self, how: str, *, goes_on: bool) -> None:
        """The script is over. how: in words; goes_on: its device does what it was given"""
        queue: Any = self._session.queue
        if goes_on:
            queue.end()
        else:
            queue.abandon()
        self._send(EndMessage(how=how))

    def await_dismissal(self) -> None:
        """All that this rank can do alone is done: until nobody needs its device any more."""
        self._send(DrainMessage(order=self.order))
        self._dismissed.acquire()

    # ---- waits

    def _await(self, message: WaitMessage | SplitMessage | JoinMessage) -> Down | None:
        """With the lock of the session, which other threads have meanwhile."""
        lock: Any = self._session.lock
        node = message.node if isinstance(message, WaitMessage) else 0
        waiter = self._waiters[message.thread] = _Waiter(threading.get_ident(), node)
        self._send(message)
        held = lock._release_save()
        try:
            waiter.woken.acquire()
        finally:
            lock._acquire_restore(held)
            self._waiters.pop(message.thread, None)
        return waiter.answer

    def _others(self) -> tuple[int, ...]:
        """The threads of Python that may do something while this one waits."""
        return tuple(native_number(ident) for ident in self._free() if ident != _thread.get_ident())

    def _free(self) -> dict[int, FrameType]:
        """The threads of Python that do not wait here, nor for one that does, and where they are.
        Those that only pin what others load are none of them.
        """
        waiting = {waiter.ident for waiter in self._waiters.values()}
        hosts = self._session.host_threads
        calling = {caller.ident for caller in hosts.calling} if waiting else set()
        return {
            ident: frame
            for ident, frame in sys._current_frames().items()
            if ident not in hosts.ours | waiting | calling and not only_pins(frame)
        }

    def _wake(self, thread: int, answer: Down) -> None:
        waiter = self._waiters.get(thread)
        if waiter is not None:
            waiter.answer = answer
            waiter.woken.release()

    # ---- what this rank is told

    def _listen(self) -> None:
        while (told := self._wire.receive()) is not None:
            match told:
                case StopMessage():
                    self._stop()
                case DismissMessage():
                    self._dismissed.release()
                    continue
                case WhereQuery():
                    self._send(StandMessage(threads=self._standing()))
                case NotReadyAnswer() | SplitAnswer() | JoinAnswer():
                    self._wake(told.thread, told)
                case WantMessage():
                    with self._session.lock:
                        self._advance(self._works[told.node])
                case ResultMessage():
                    self._arrived(told)
            self._send(DoneMessage())
        os._exit(1)  # who matches is gone

    def _arrived(self, told: ResultMessage) -> None:
        with self._session.lock:
            work = self._works.pop(told.node)
            work.result = told.data
            self._advance(None)
        for thread, waiter in list(self._waiters.items()):
            if waiter.node == told.node and waiter.answer is None:
                self._wake(thread, told)

    def _advance(self, work: GroupWork | None) -> None:
        queue: Any = self._session.queue
        queue.advance(work)

    def _standing(self) -> dict[int, ThreadPlace]:
        stack = self._session.stack
        return {
            native_number(ident): ThreadPlace(
                stack=stack(frame),
                is_in_group=is_in_group(frame),
                is_launching=is_launching(frame),
            )
            for ident, frame in self._free().items()
        }

    def _send(self, message: Any) -> None:
        with self._sending:
            self._wire.send(message)
