"""Taped device: what a program asked of the device in one run, to be done again under other holds
without the program.

A program goes on as before as long as all that it reads is what it was. So the device does again
what was asked of it, holds and all, and compares what the host would read, content by content; the
first difference ends it, and the program has to be run really.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial

import numpy as np
from numpy.typing import DTypeLike

from racegate.device.memory import DeviceBuffer, HostBuffer, Rows, Storage
from racegate.device.nodes import Event, Flag, Stream
from racegate.device.recorder import Recorder, Version
from racegate.device.virtual.device import Run, VirtualDevice
from racegate.device.virtual.storage import VirtualSnapshot, VirtualStorage, storage_of
from racegate.history.edge import Edge
from racegate.history.trace import Access, Owner

Expected = Sequence[Owner | None]


class TapeDivergedError(Exception):
    """The host would read something else than it read when the tape was made."""


class Tape:
    """What was asked of a device, in parts. parts[0]: before the first was begun

    is_running: whether what is asked is written down; is_whole: nothing was asked that cannot be
    done again: flags
    """

    def __init__(self) -> None:
        self.parts: list[list[Run]] = [[]]
        self.is_running = True
        self.is_whole = True

    def begin(self) -> None:
        """Begins a part."""
        self.parts.append([])

    def end(self) -> None:
        """Nothing is written down from here on."""
        self.is_running = False

    def miss(self) -> None:
        """Something was asked that cannot be done again."""
        self.is_whole = False

    def add(self, again: Run) -> None:
        """The last that was asked. again: does it once more"""
        if self.is_running:
            self.parts[-1].append(again)


class TapedDevice(VirtualDevice):
    """A virtual device that writes down what is asked of it. It needs a memo, which gives contents
    their numbers.
    """

    @cached_property
    def tape(self) -> Tape:
        """What was asked of it."""
        return Tape()

    def again(self, part: int) -> None:
        """What was asked of it in a part of the tape, once more, from the memory and the queues
        that it had before.

        Raises TapeDivergedError if the host would go on in another way, DeadlockError.
        """
        for ask in self.tape.parts[part]:
            ask()

    # What the methods mean is said in the protocol.

    def host_buffer(self, name: str, shape: tuple[int, ...], dtype: DTypeLike) -> HostBuffer:
        plain = super().host_buffer(name, shape, dtype)
        return TapedBuffer(plain, self.recorder, reads=self.reads, tape=self.tape)

    def constant(self, name: str, values: np.ndarray) -> DeviceBuffer:
        made = super().constant(name, values)
        self.tape.add(partial(storage_of(made).hold_constant, name, values))
        return made

    def _storage(self, shape: tuple[int, ...], dtype: DTypeLike) -> VirtualStorage:
        storage = super()._storage(shape, dtype)
        self.tape.add(partial(self._take_again, storage))
        return storage

    def _take_again(self, storage: VirtualStorage) -> None:
        storage.poison()
        self.storages.append(storage)

    def _put(self, stream: Stream, name: str, accesses: tuple[Access, ...], work: Run) -> None:
        put = partial(super()._put, stream, name, accesses, work)
        self.tape.add(put)
        put()

    def record(self, stream: Stream, event: Event) -> None:
        super().record(stream, event)
        assert event.latest is not None, "it was recorded just now"
        self.tape.add(partial(self._queues.arrange, stream, event.latest))

    def wait_stream(self, stream: Stream, event: Event, edge: Edge, *, step: int) -> None:
        super().wait_stream(stream, event, edge, step=step)
        if event.latest is not None and self._queues.is_kept(edge):
            self.tape.add(partial(self._queues.hold_back, stream, event.latest))

    def wait_host(self, event: Event, edge: Edge, *, step: int) -> None:
        super().wait_host(event, edge, step=step)
        if event.latest is not None and self._queues.is_kept(edge):
            self.tape.add(partial(self._queues.complete, event.latest, edge.name))

    def wait_flag(self, stream: Stream, flag: Flag) -> None:
        super().wait_flag(stream, flag)
        self.tape.miss()

    def arrive(self, stream: Stream, arrival: Version) -> None:
        super().arrive(stream, arrival)
        self.tape.add(partial(self._queues.come, stream, arrival))

    def wait_arrival(self, stream: Stream, arrival: Version, edge: Edge, *, step: int) -> None:
        super().wait_arrival(stream, arrival, edge, step=step)
        if not self._queues.is_kept(edge):
            return
        if not arrival.is_done:
            # It may have come in an earlier run of the tape: here it has not, held or not.
            self.tape.add(partial(arrival.begin, is_done=False))
        self.tape.add(partial(self._queues.hold_back, stream, arrival))

    def mark(self, alias: str, *, step: int) -> None:
        super().mark(alias, step=step)
        self.tape.add(partial(self._queues.mark, alias, step=step))

    @contextmanager
    def action(self, name: str, *, step: int) -> Iterator[None]:
        with super().action(name, step=step):
            point = self.recorder.action[0]
            yield
        self.tape.add(partial(self._queues.pass_point, point))

    def query(self, event: Event, *, step: int) -> bool:
        is_done = super().query(event, step=step)
        if event.latest is not None:
            self.tape.add(partial(_query_again, event.latest, is_done))
        return is_done

    def snapshot(
        self, stream: Stream, parts: Sequence[tuple[DeviceBuffer, Rows]]
    ) -> VirtualSnapshot:
        taken = super().snapshot(stream, parts)
        show = partial(self._show, stream, [storage_of(buffer) for buffer, _ in parts])
        self.tape.add(partial(self._look, stream, show))
        return taken


class TapedBuffer(HostBuffer):
    """Pinned memory whose reads and writes are written down."""

    __slots__ = ("_tape",)

    def __init__(
        self,
        plain: HostBuffer,
        recorder: Recorder,
        *,
        reads: list[tuple[int, int]],
        tape: Tape,
    ) -> None:
        super().__init__(plain.name, plain.storage, recorder, reads=reads)
        self._tape = tape

    # What the methods mean is said in HostBuffer.

    def read(self, rows: int | None = None, *, expect: Expected = ()) -> np.ndarray:
        self._note(enumerate(expect))
        return super().read(rows, expect=expect)

    def read_row(self, row: int, *, expect: Owner | None = None) -> object:
        self._note([(row, expect)])
        return super().read_row(row, expect=expect)

    def peek(self) -> np.ndarray:
        self._note(())
        return super().peek()

    def _note(self, expect: Iterable[tuple[int, Owner | None]]) -> None:
        owned = [(row, owner) for row, owner in expect if owner is not None]
        self._tape.add(partial(_read_again, self.storage, self.storage.content, owned))

    def write(
        self,
        values: np.ndarray | Sequence[object],
        *,
        row_first: int = 0,
        own: Sequence[Owner] = (),
    ) -> None:
        super().write(values, row_first=row_first, own=own)
        written = self.storage.array[row_first : row_first + len(values)].copy()
        self._tape.add(partial(self.storage.write, written, row_first, tuple(own)))

    def write_row(self, row: int, value: object, *, own: Owner | None = None) -> None:
        super().write_row(row, value, own=own)
        written = self.storage.array[row].copy()
        self._tape.add(partial(self.storage.write_row, row, written, own))

    def write_columns(self, row: int, first: int, values: Sequence[object]) -> None:
        super().write_columns(row, first, values)
        written = self.storage.array[row, first : first + len(values)].copy()
        self._tape.add(partial(self.storage.write_columns, row, first, written))

    def move_row(self, source: int, target: int) -> None:
        super().move_row(source, target)
        self._tape.add(partial(self.storage.move_row, source, target))

    def swap_rows(self, first: int, second: int) -> None:
        super().swap_rows(first, second)
        self._tape.add(partial(self.storage.swap_rows, first, second))


def _read_again(storage: Storage, content: int, owned: Sequence[tuple[int, Owner]]) -> None:
    """The host reads what it read. owned: (row, owner) that it counts on"""
    if storage.content != content or any(storage.owners[row] != owner for row, owner in owned):
        raise TapeDivergedError


def _query_again(version: Version, is_done: bool) -> None:  # noqa: FBT001
    if version.is_done != is_done:
        raise TapeDivergedError
