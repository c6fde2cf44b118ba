"""Latches: words in pinned memory for which streams wait, and the evidence that they did.

A latch stands on a stream in front of the operation it holds. The host opens it by storing the next
sequence number; right behind the wait the stream copies the word into device memory. What it
copied says, independently of the host's pending queues, that the operation began after that
opening, and not by another (the watchdog's), nor before (a wait that did not wait).
"""

from __future__ import annotations

from threading import Lock

import numpy as np

from racegate.device.chooser import Ticket
from racegate.device.cuda.driver import CudaDriver, Handle
from racegate.history.schedule import FORCED

WORDS_PER_BLOCK = 4096
CLOSED, EXPIRED = 0, 0x7FFFFFFF


class _Block:
    """words: pinned; evidence: what streams saw, on the device; seen: a copy of it, at the end."""

    __slots__ = ("evidence", "seen", "words")

    def __init__(self, cuda: CudaDriver, stream: Handle) -> None:
        self.words = cuda.pinned((WORDS_PER_BLOCK,), np.int32)
        self.words.fill(CLOSED)
        self.seen = cuda.pinned((WORDS_PER_BLOCK,), np.int32)
        self.evidence = cuda.memory((WORDS_PER_BLOCK,), np.int32)
        cuda.fill(stream, self.evidence, CLOSED)


class Latch:
    """One word. opened: the sequence number that the host stored; ticket: of the operation, if a
    hold names it; holds: the ticket's holds when it was made.
    """

    __slots__ = ("block", "holds", "index", "opened", "ticket")

    def __init__(self, block: _Block, index: int, ticket: Ticket | None) -> None:
        self.block = block
        self.index = index
        self.ticket = ticket
        self.holds = () if ticket is None else tuple(ticket.holds)
        self.opened = CLOSED

    @property
    def is_confirmed(self) -> bool:
        """Whether the stream passed by the opening that the host made."""
        return self.opened != CLOSED and int(self.block.seen[self.index]) == self.opened


class Latches:
    """All latches of a run. stream: for what belongs to no lane; see also Watchdog."""

    def __init__(self, cuda: CudaDriver, stream: Handle) -> None:
        self._cuda = cuda
        self._stream = stream
        self._lock = Lock()
        self._all: list[Latch] = []
        self._sequence = 0
        self._is_expired = False
        self._block = self._new_block()

    def _new_block(self) -> _Block:
        block = _Block(self._cuda, self._stream)
        filled = self._cuda.event()
        self._cuda.record(filled, self._stream)
        self._cuda.synchronize(filled)
        return block

    def make(self, ticket: Ticket | None = None) -> Latch:
        """A closed latch, on no stream yet."""
        index = len(self._all) % WORDS_PER_BLOCK
        if index == 0 and self._all:
            self._block = self._new_block()
        latch = Latch(self._block, index, ticket)
        with self._lock:
            self._all.append(latch)
            if self._is_expired:
                self._cuda.store(latch.block.words, latch.index, EXPIRED)
        return latch

    def put(self, stream: Handle, latch: Latch) -> None:
        """What is put on the stream from now on waits for the latch."""
        block, index = latch.block, latch.index
        self._cuda.wait_word(stream, block.words, index)
        one = slice(index, index + 1)
        self._cuda.copy(stream, block.evidence[one], block.words[one])

    def open(self, latch: Latch) -> None:
        """Whatever waits for the latch may go on."""
        with self._lock:
            if latch.block.words[latch.index] == CLOSED:
                self._sequence += 1
                latch.opened = self._sequence
                self._cuda.store(latch.block.words, latch.index, latch.opened)

    def expire(self) -> None:
        """Opens all there are and all to come, flags included, and vouches for none of them."""
        with self._lock:
            self._is_expired = True
            for latch in self._all:
                if latch.block.words[latch.index] == CLOSED:
                    self._cuda.store(latch.block.words, latch.index, EXPIRED)

    def gather(self) -> None:
        """Fetches the evidence. The device has finished."""
        for block in {id(latch.block): latch.block for latch in self._all}.values():
            self._cuda.copy(self._stream, block.seen, block.evidence)
        self._cuda.drain()

    def unconfirmed(self) -> dict[str, int]:
        """Hold text -> how many operations the pending queues say it kept, of which there is no
        evidence.
        """
        counts: dict[str, int] = {}
        for latch in self._all:
            if latch.ticket is None or latch.is_confirmed:
                continue
            for watch in latch.holds:
                if watch not in latch.ticket.holds or watch.hold.until == FORCED:
                    text = watch.hold.text()
                    counts[text] = counts.get(text, 0) + 1
        return counts
