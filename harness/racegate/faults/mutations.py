"""Mutations of one edge: its wait or its record dropped, too early, too late or on another stream.
And edges that an engine lacks, put in around its device: what a repair is tried with.

A mutated device does to the program what a wrong line in the engine would, without touching the
engine. Operators: the synchronisation mutants of Bradbury et al. (TR 2006-520), for streams.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from racegate.device.memory import Buffer
from racegate.device.protocol import Device, DeviceBuffer, Event, Graph, Stream
from racegate.history.edge import Edge
from racegate.history.trace import unranked
from racegate_kernels.backend import Kernel


class MutationOperator(StrEnum):
    """How an edge is moved."""

    DROP = "dropped"
    RECORD_EARLY = "recorded before"
    RECORD_LATE = "recorded one operation late"
    RECORD_ELSEWHERE = "recorded on"
    WAIT_LATE = "waited for after"
    WAIT_ELSEWHERE = "waited for on"


class Mutation(msgspec.Struct, frozen=True, kw_only=True):
    """One edge kept at a wrong place.

    event: base name of the event the edge waits for (without its step)
    place: what the operator needs: the operation it is recorded before, the lane, the host action
    """

    edge: str
    operator: MutationOperator
    event: str = ""
    place: str = ""

    @property
    def text(self) -> str:
        """In words."""
        return f"{self.edge}: {self.operator} {self.place}".rstrip()


class _Wait(NamedTuple):
    """A wait that was put off. stream: None for the host."""

    stream: Stream | None
    event: Event
    edge: Edge
    step: int


# Calls that issue a copy, and what its name begins with.
COPIES = {"upload": "h2d", "upload_blocks": "h2d", "download": "d2h", "download_blocks": "d2h"}


class WrappedDevice:
    """A device that is told of each operation before and after it is issued; everything else goes
    to the device itself.
    """

    def __init__(self, device: Device) -> None:
        self._device = device

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._device, name)
        if name not in COPIES:
            return found

        def copy(
            stream: Stream, target: Buffer, source: Buffer, *named: str, step: int, **rest: object
        ) -> None:
            operation = named[0] if named else target.name.removesuffix("_gpu")
            with self._issuing(stream, f"{COPIES[name]}:{operation}", step):
                found(stream, target, source, *named, step=step, **rest)

        return copy

    def launch(self, stream: Stream, kernel: Kernel, name: str, *, step: int, **rest: Any) -> None:
        """Issues a kernel."""
        with self._issuing(stream, f"kernel:{name}", step):
            self._device.launch(stream, kernel, name, step=step, **rest)

    def replay(self, stream: Stream, graph: Graph, *, step: int, **rest: Any) -> None:
        """Issues a graph."""
        with self._issuing(stream, f"graph:{graph.name}", step):
            self._device.replay(stream, graph, step=step, **rest)

    def _issuing(self, stream: Stream, operation: str, step: int) -> AbstractContextManager[None]:
        """What is done around an operation."""
        raise NotImplementedError


class MutatedDevice(WrappedDevice):
    """A device that keeps one edge at a wrong place; everything else goes to the device itself."""

    def __init__(self, device: Device, mutation: Mutation) -> None:
        super().__init__(device)
        self._mutation = mutation
        self._event: Event | None = None
        self._late_record: tuple[Stream, Event] | None = None
        self._late_wait: _Wait | None = None

    def event(self, name: str) -> Event:
        """Makes an event, and remembers that of the edge."""
        made = self._device.event(name)
        if self._is_the_event(name):
            self._event = made
        return made

    def _is_the_event(self, name: str) -> bool:
        return name.partition("@")[0] == self._mutation.event

    def record(self, stream: Stream, event: Event) -> None:
        """Records, unless the mutation records it elsewhere in the program."""
        if not self._is_the_event(unranked(event.name)):
            self._device.record(stream, event)
            return
        match self._mutation.operator:
            case MutationOperator.RECORD_EARLY:
                pass  # it was recorded before the operation
            case MutationOperator.RECORD_LATE:
                self._late_record = (stream, event)
            case MutationOperator.RECORD_ELSEWHERE:
                self._device.record(self._elsewhere(stream), event)
            case _:
                self._device.record(stream, event)

    def wait_stream(self, stream: Stream, event: Event, edge: Edge, *, step: int) -> None:
        """Waits, unless the mutation waits later or elsewhere."""
        if edge.name == self._mutation.edge:
            if self._mutation.operator is MutationOperator.WAIT_LATE:
                self._late_wait = _Wait(stream, event, edge, step)
                return
            if self._mutation.operator is MutationOperator.WAIT_ELSEWHERE:
                stream = self._elsewhere(stream)
        self._device.wait_stream(stream, event, edge, step=step)

    def _elsewhere(self, stream: Stream) -> Stream:
        """The wrong stream, where there is one of that name."""
        lane = self._mutation.place
        return self._device.stream(lane) if lane in self._device.lanes else stream

    def wait_host(self, event: Event, edge: Edge, *, step: int) -> None:
        """Waits, unless the mutation waits behind a later host action."""
        if (
            edge.name == self._mutation.edge
            and self._mutation.operator is MutationOperator.WAIT_LATE
        ):
            self._late_wait = _Wait(None, event, edge, step)
            return
        self._device.wait_host(event, edge, step=step)

    @contextmanager
    def action(self, name: str, *, step: int) -> Iterator[None]:
        """A host action; what was put off until behind it is done then."""
        with self._device.action(name, step=step):
            yield
        late = self._late_wait
        if late is not None and late.stream is None and name == self._mutation.place:
            self._late_wait = None
            self._device.wait_host(late.event, late.edge, step=late.step)

    def free(self, buffer: DeviceBuffer, *, step: int) -> None:
        """Gives memory back, which is an operation of its stream."""
        self._device.free(buffer, step=step)
        stream = self._late_wait.stream if self._late_wait is not None else None
        self._after(stream if self._late_record is None else self._late_record[0])

    @contextmanager
    def _issuing(self, stream: Stream, operation: str, step: int) -> Iterator[None]:
        """What comes right before an operation, and right after it."""
        mutation = self._mutation
        is_early = (
            mutation.operator is MutationOperator.RECORD_EARLY and operation == mutation.place
        )
        if is_early and self._event is not None:
            self._device.record(stream, self._event)
        yield
        self._after(stream)

    def _after(self, stream: Stream | None) -> None:
        """An operation has been issued to a stream: what was put off until then is done."""
        if self._late_record is not None and self._late_record[0] is stream:
            self._device.record(*self._late_record)
            self._late_record = None
        late = self._late_wait
        if late is not None and late.stream is not None and late.stream is stream:
            self._late_wait = None
            self._device.wait_stream(late.stream, late.event, late.edge, step=late.step)


HOST = "host:"


class AddedEdge(msgspec.Struct, frozen=True, kw_only=True):
    """An edge that no engine declares. first: the operation that an event is recorded behind, as
    `d2h:sampled`; second: the operation whose stream waits for it, or the action of the host
    """

    first: str
    second: str
    buffer: str

    @property
    def is_host(self) -> bool:
        """The host waits."""
        return self.second.startswith(HOST)

    @property
    def name(self) -> str:
        """What its waits are called in a trace."""
        return f"added:{self.first}>{self.second}"

    @property
    def words(self) -> str:
        """What stands where."""
        waiter = "the host" if self.is_host else "its stream"
        return f"an event recorded behind {self.first}, waited for by {waiter} before {self.second}"

    @property
    def edge(self) -> Edge:
        """As the engine would declare it."""
        return Edge(
            name=self.name,
            before=self.first,
            after=self.second,
            buffers=(self.buffer,),
            reason="it was put in to try a repair",
        )


class ExtendedDevice(WrappedDevice):
    """A device that keeps edges beside the engine's own."""

    def __init__(self, device: Device, added: Sequence[AddedEdge]) -> None:
        super().__init__(device)
        self._added = tuple(added)
        self._recorded: dict[AddedEdge, Event] = {}

    @contextmanager
    def action(self, name: str, *, step: int) -> Iterator[None]:
        """A host action, behind what it waits for."""
        for edge, event in self._waited(f"{HOST}{name}"):
            self._device.wait_host(event, edge.edge, step=step)
        with self._device.action(name, step=step):
            yield

    def free(self, buffer: DeviceBuffer, *, step: int) -> None:
        stream = self._device.stream(self._device.lanes[buffer.lane - 1])
        with self._issuing(stream, f"free:{buffer.name.partition('@')[0]}", step):
            self._device.free(buffer, step=step)

    @contextmanager
    def _issuing(self, stream: Stream, operation: str, step: int) -> Iterator[None]:
        for edge, event in self._waited(operation):
            self._device.wait_stream(stream, event, edge.edge, step=step)
        yield
        for edge in self._added:
            if edge.first == operation:
                event = self._recorded.setdefault(edge, self._device.event(edge.name))
                self._device.record(stream, event)

    def _waited(self, second: str) -> list[tuple[AddedEdge, Event]]:
        return [(edge, one) for edge, one in self._recorded.items() if edge.second == second]
