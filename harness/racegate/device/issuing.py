"""How calls become operations with footprints, whatever work it is that an operation does."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar

from racegate.device.masks import mask_of, prefix_mask
from racegate.device.memory import Buffer, require_live
from racegate.device.nodes import Stream
from racegate.device.protocol import Device
from racegate.history.trace import Access

Work = TypeVar("Work")
Accesses = tuple[Access, ...]


class IssuingDevice(Device, Generic[Work]):
    """A device whose operations do some kind of work."""

    @abstractmethod
    def _range(self, target: Buffer, source: Buffer, first: int, end: int) -> Work:
        """Copies rows first .. end - 1, with their owners."""

    @abstractmethod
    def _blocks(
        self, target: Buffer, source: Buffer, into: tuple[int, ...], out_of: tuple[int, ...]
    ) -> Work:
        """Copies row out_of[i] of the source to row into[i] of the target, without owners."""

    @abstractmethod
    def _put(self, stream: Stream, name: str, accesses: Accesses, work: Work) -> None:
        """Runs at once, or when its turn has come."""

    def _issue(self, stream: Stream, name: str, step: int, accesses: Accesses, work: Work) -> None:
        assert self._capturing is None, f"{name} cannot be captured: only launches can"
        self.recorder.issue(stream.index, name, step, accesses)
        self._put(stream, name, accesses, work)

    def _copy(
        self, stream: Stream, name: str, target: Buffer, source: Buffer, step: int, rows: int
    ) -> None:
        require_live(target, source)
        for piece, first, end in self._queues.pieces(stream, name, rows):
            mask = prefix_mask(end) ^ prefix_mask(first)
            accesses = (source.access(mask, is_write=False), target.access(mask, is_write=True))
            self._issue(stream, piece, step, accesses, self._range(target, source, first, end))

    def _copy_blocks(
        self,
        stream: Stream,
        name: str,
        target: Buffer,
        source: Buffer,
        step: int,
        into: Sequence[int],
        out_of: Sequence[int],
    ) -> None:
        require_live(target, source)
        read = source.access(mask_of(out_of), is_write=False)
        accesses = (read, target.access(mask_of(into), is_write=True))
        work = self._blocks(target, source, tuple(into), tuple(out_of))
        self._issue(stream, name, step, accesses, work)
