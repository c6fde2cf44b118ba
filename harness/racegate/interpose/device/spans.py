"""Stretches of memory that the runtime handed out, by address."""

from __future__ import annotations

import _thread
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from enum import Enum
from typing import Protocol

from racegate.history.finding import Stack
from racegate.interpose.device.guards import PAGE
from racegate.interpose.device.kept import is_shared_mapping
from racegate.order.ranges import Ranges
from racegate.order.recorder import Recorder

# Where the virtual device has its memory: at the same addresses in each process that asks for the
# same in the same order.
DEVICE_BASE, DEVICE_END = 1 << 45, 1 << 46


class Place(Enum):
    """Where memory is, as copies tell it apart."""

    DEVICE = "device"
    PINNED = "pinned"
    PAGEABLE = "pageable"


class Span:
    """One allocation or registration. storage: a CPU alias of its bytes, made when first needed;
    first_page, last_page: of the pages on which nothing else lies; is_shared: other processes may
    have the memory too; is_landed_in: a real GPU writes it when it likes, so that no look at it
    says what it holds.
    """

    __slots__ = (
        "base", "end", "first_page", "is_landed_in", "is_shared", "last_page", "place", "storage",
    )  # fmt: skip

    def __init__(
        self, base: int, size: int, place: Place, *, is_whole_pages: bool, is_shared: bool = False
    ) -> None:
        self.base = base
        self.end = base + size
        self.place = place
        self.is_shared = is_shared
        self.is_landed_in = False
        self.storage: object = None
        up, down = (base + PAGE - 1) & -PAGE, (base + size) & -PAGE
        self.first_page, self.last_page = up, down
        if is_whole_pages:
            self.first_page, self.last_page = base & -PAGE, (base + size + PAGE - 1) & -PAGE

    def note_write(self, *, lands_at_once: bool) -> None:
        """The device writes here, and has done so by now if what it is given lands at once."""
        self.is_landed_in |= not lands_at_once


class Spans:
    """All memory that the device can reach. Other threads may look for a span while one comes or
    goes: the list that they look in is never changed, but exchanged.

    pinned: how many are pinned; pinned_hull: around all of these, and what some were before
    aliases: what `kernels/` keeps of views of this memory; of no use once some of it is no more
    """

    def __init__(self) -> None:
        self._bases: list[int] = []
        self._spans: dict[int, Span] = {}
        self.pinned = 0
        self.pinned_hull = (0, 0)
        self.aliases: dict[object, object] = {}

    def __iter__(self) -> Iterator[Span]:
        spans = map(self._spans.get, self._bases)
        return (span for span in spans if span is not None)

    def add(self, base: int, size: int, place: Place, *, is_whole_pages: bool) -> None:
        self.remove(base)
        is_shared = not is_whole_pages and is_shared_mapping(base)
        self._spans[base] = Span(
            base, size, place, is_whole_pages=is_whole_pages, is_shared=is_shared
        )
        self._bases = sorted((*self._bases, base))
        if place is Place.PINNED:
            low, high = self.pinned_hull if self.pinned else (base, base)
            self.pinned_hull = (min(low, base), max(high, base + size))
            self.pinned += 1

    def remove(self, base: int) -> None:
        span = self._spans.pop(base, None)
        if span is not None:
            self.aliases.clear()
            self._bases = [known for known in self._bases if known != base]
            self.pinned -= span.place is Place.PINNED

    def find(self, address: int) -> Span | None:
        """The span that holds the address."""
        bases = self._bases
        index = bisect_right(bases, address) - 1
        span = self._spans.get(bases[index]) if index >= 0 else None
        return span if span is not None and address < span.end else None

    def has(self, low: int, high: int) -> bool:
        """Whether the bytes [low, high) lie in one span."""
        span = self.find(low)
        return span is not None and high <= span.end

    def pinned_hulls(self, ranges: Ranges) -> Ranges:
        """The parts of sorted ranges that are pinned, those of one span as one range."""
        hulls = []
        for span in self:
            if span.place is not Place.PINNED:
                continue
            first = bisect_right(ranges, span.base, key=lambda pair: pair[1])
            last = bisect_left(ranges, span.end, key=lambda pair: pair[0])
            if first < last:
                low, high = ranges[first][0], ranges[last - 1][1]
                hulls.append((max(low, span.base), min(high, span.end)))
        return tuple(hulls)

    def place(self, address: int) -> Place:
        span = self.find(address)
        return Place.PAGEABLE if span is None else span.place


_EARLIER_MAX = 3  # owners of a block that are remembered


class AllocationSites:
    """Which allocation holds an address: where the program asked for it, and when.

    The allocators hand the same bytes out again; the latest owner counts. Threads may ask at once.
    """

    def __init__(self) -> None:
        self._lock = _thread.allocate_lock()  # not one of the program's
        self._bases: list[int] = []
        self._sites: dict[int, tuple[int, int, Stack]] = {}
        self._earlier: dict[int, tuple[tuple[int, int, Stack], ...]] = {}
        self._unseen: set[int] = set()

    def add(
        self, base: int, size: int, index: int, stack: Stack, *, is_unseen: bool = False
    ) -> None:
        """A tensor's memory begins to be its own. index: of the event that came before; is_unseen:
        nobody writes down what is done with it
        """
        with self._lock:
            self._add(base, base + size, index, stack)
            (self._unseen.add if is_unseen else self._unseen.discard)(base)

    def hide(self, ranges: Ranges) -> None:
        """Bytes are written by what nobody writes down."""
        for low, high in ranges:
            self._unseen.update(base for base, _, _ in self.within(low, high))

    def within(self, low: int, high: int) -> list[tuple[int, int, int]]:
        """(first byte, one past the last, index) of the owners of bytes that hold only what was
        written down since.
        """
        with self._lock:
            at = max(0, bisect_right(self._bases, low) - 1)
            bases = self._bases[at : bisect_left(self._bases, high)]
            sites = [(base, *self._sites[base][:2]) for base in bases if base not in self._unseen]
        return [site for site in sites if site[1] > low]

    def _add(self, base: int, end: int, index: int, stack: Stack) -> None:
        known = self._sites.get(base)
        if known is not None and known[0] == end:  # a block of the same size, as in every loop
            self._end(base)
            self._sites[base] = (end, index, stack)
            return
        at = bisect_right(self._bases, base)
        if at and base < self._sites[self._bases[at - 1]][0]:
            at -= 1
        stop = at
        while stop < len(self._bases) and self._bases[stop] < end:
            self._end(self._bases[stop])
            del self._sites[self._bases[stop]]
            stop += 1
        self._bases[at:stop] = [base]
        self._sites[base] = (end, index, stack)

    def _end(self, base: int) -> None:
        self._earlier[base] = (self._sites[base], *self._earlier.get(base, ())[: _EARLIER_MAX - 1])

    def earlier(self, address: int, index: int) -> Stack:
        """Where the memory was asked for that held the address at an event and is freed by now,
        empty if that is not known any more. index: of the event
        """
        with self._lock:
            sites = [
                site
                for base, ended in self._earlier.items()
                for site in ended
                if base <= address < site[0] and site[1] <= index
            ]
        return max(sites, key=lambda site: site[1])[2] if sites else ()

    def find(self, address: int) -> tuple[int, int, Stack] | None:
        """(base, index, stack) of the owner of the address."""
        with self._lock:
            return self._find(address)

    def bounds(self, address: int) -> tuple[int, int] | None:
        """[first byte, one past the last) of the memory whose owner has the address."""
        with self._lock:
            site = self._find(address)
            return None if site is None else (site[0], self._sites[site[0]][0])

    def _find(self, address: int) -> tuple[int, int, Stack] | None:
        at = bisect_right(self._bases, address) - 1
        if at < 0:
            return None
        base = self._bases[at]
        end, index, stack = self._sites[base]
        return (base, index, stack) if address < end else None


class SitedSession(Protocol):
    """What a session is asked for here."""

    @property
    def is_recording(self) -> bool: ...

    @property
    def recorder(self) -> Recorder: ...

    @property
    def allocation_sites(self) -> AllocationSites: ...

    def stack(self) -> Stack:
        """The frames of the program, innermost first."""
        ...

    def stream_handle(self, lane: int) -> int:
        """The stream of a lane, as the runtime knows it."""
        ...


class ProgramSites:
    """Where a program asked for its pinned memory and made its streams, in a recorded run."""

    def __init__(self, session: SitedSession) -> None:
        self._session = session
        self._pinned = AllocationSites()
        self._streams: dict[int, Stack] = {}

    def stream_made(self, handle: int) -> None:
        """The program makes a stream here: of one that torch hands out again, the last counts."""
        if self._session.is_recording:
            self._streams[handle] = self._session.stack()

    def asked_for_pinned(self, low: int, nbytes: int) -> None:
        """The program asks for pinned memory here."""
        session = self._session
        if session.is_recording and nbytes:
            self._pinned.add(low, nbytes, session.recorder.events, session.stack())

    def made(self, lane: int) -> Stack:
        """Where the stream of a lane was made; nothing for a thread, or the default stream."""
        if self._session.recorder.lanes.is_host(lane):
            return ()
        return self._streams.get(self._session.stream_handle(lane), ())

    def allocated(self, address: int) -> Stack:
        """Where the memory was asked for that holds an address; nothing if nobody knows."""
        sites = (self._session.allocation_sites.find(address), self._pinned.find(address))
        return next((site[2] for site in sites if site is not None), ())
