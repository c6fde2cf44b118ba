"""Touches of pinned memory that nobody reports: by memoryviews, ctypes, C extensions, processes.

Three things show them. Pages that the device may be using are closed, so that a touch faults; what
such a page held before is compared with what it holds when the program comes to the device again,
which gives the bytes of a write. What lies on pages that cannot be closed is kept and compared when
the host has waited: a write that changed it is by nobody who is known, and ends the run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Protocol

from racegate.interpose.device.guards import PAGE, Guards
from racegate.interpose.device.kept import KeptEntry, KeptMemory, changed_ranges, peek
from racegate.interpose.device.library import Touch
from racegate.interpose.device.spans import Place, Span, Spans
from racegate.order.clocks import Clock
from racegate.order.memory import Access
from racegate.order.ranges import Ranges, merged, size_of
from racegate.order.recorder import Recorder, Stack

RANGES_CLOSED_MAX = 16  # per operation; of more, what lies between them is watched too
RAW = "pinned memory touched below Python (of a write the bytes it changed, of a read the first)"
RefuseWrite = Callable[[int, str], None]
RAW_READS = "pinned memory whose pages cannot be closed for all (raw reads of it are not seen)"
RAW_WRITES = "pinned memory that could not be compared (raw writes to it are not seen)"
# Here, and not with the session: launchers read it, and import no torch.
BLOCKING = "blocking streams of a GPU but the first (taken as others)"
QUERIES = "completion queries that no edge settles (the other answer is a branch)"
OTHER_THREADS = "host threads of the program (their order is judged, not searched)"


class WatchedSession(Protocol):
    """The session, as far as it is needed here."""

    recorder: Recorder
    spans: Spans
    guards: Guards
    not_seen: Counter[str]

    def stack(self) -> Stack: ...

    def thread_lane(self, ident: int | None = None) -> int: ...


class TouchWatch:
    """What is done to see such touches, and what they are taken for.

    raw_reads: how many such reads were noticed
    lands_at_once: what is issued in a recorded run has run by then, as on the virtual device
    refuse_write: told of a byte that nobody known has written, and in which words; ends the run
    """

    def __init__(
        self,
        session: WatchedSession,
        *,
        refuse_write: RefuseWrite | None = None,
        lands_at_once: bool = True,
    ) -> None:
        self._session = session
        self._kept = KeptMemory()
        self.raw_reads = 0
        self._lands_at_once = lands_at_once
        self._refuse_write = refuse_write

    def use(self, access: Access, reads: Ranges, writes: Ranges) -> None:
        """An operation of the device was given these bytes, some of them pinned."""
        self._watch(access, reads, is_write=False)
        self._watch(access, writes, is_write=True)

    def expect(self, reads: Ranges, writes: Ranges) -> None:
        """This thread is about to touch these bytes, and that was reported."""
        for low, high in (*reads, *writes):
            self._session.guards.lift(low, high)
        for low, high in writes:
            self._kept.forget(low, high)

    def touched(self, touch: Touch) -> None:
        """A touch was noticed. It stands where the program comes to the device again."""
        session = self._session
        session.not_seen[RAW] += 1
        self.raw_reads += not touch.is_write
        touched = ((touch.address, touch.address + touch.size),)
        changed = self._changed_since(touch)
        page = touch.address & -PAGE
        session.guards.note_open(page, page + PAGE)
        if touch.is_write:
            self._record(touch.thread, (), merged((*changed, *touched)))
        else:
            self._record(touch.thread, touched, changed)

    def arrive(self, clock: Clock) -> None:
        """The host knows that what the clock covers is complete."""
        self._blame(self._kept.arrive(clock))
        guards = self._session.guards
        if guards.has_any():
            guards.arrive(clock)
            guards.settle()

    def found_complete(self, clock: Clock) -> None:
        """An allocator was told so some time ago: nobody knows what was written before that."""
        self._kept.give_up(clock)

    def end(self) -> None:
        """The program has come to its end."""
        self._blame(self._kept.end(), "noticed when the program ended")

    def forget(self, span: Span) -> None:
        """The memory is no more."""
        self._kept.forget(span.base, span.end)
        self._session.guards.drop(span.base, span.end)

    # ---- before a touch

    def _watch(self, access: Access, ranges: Ranges, *, is_write: bool) -> None:
        spans, guards = self._session.spans, self._session.guards
        if len(ranges) > RANGES_CLOSED_MAX:
            ranges = spans.pinned_hulls(ranges)
        for low, high in ranges:
            span = spans.find(low)
            if span is None or span.place is not Place.PINNED:
                continue
            first = max(low & -PAGE, span.first_page)
            last = min((high + PAGE - 1) & -PAGE, span.last_page)
            lane, number = access.lane, access.number
            if first >= last or not guards.close(first, last, lane, number, is_write=is_write):
                first = last = high
            if span.is_shared:
                first = last = high
            self._keep(span, low, min(first, high), access, is_write=is_write)
            self._keep(span, last, high, access, is_write=is_write)

    def _keep(self, span: Span, low: int, high: int, access: Access, *, is_write: bool) -> None:
        """What the bytes hold now, for the time when the host has waited for the operation."""
        if low >= high:
            return
        not_seen = self._session.not_seen
        if is_write:
            not_seen[RAW_READS] += 1
            span.note_write(lands_at_once=self._lands_at_once)
            self._kept.forget(low, high)
        else:
            self._blame(self._kept.take(low, high))
        if span.is_landed_in or not self._kept.add(low, high, access):
            not_seen[RAW_WRITES] += 1

    # ---- after it

    def _changed_since(self, touch: Touch) -> Ranges:
        """What was written on the page of a touch since it came, in pinned memory."""
        session = self._session
        page = touch.address & -PAGE
        span = session.spans.find(touch.address)
        if touch.page is None or span is None:
            return ()
        if not self._lands_at_once and session.guards.is_written(page, page + PAGE):
            return ()  # the device may have written it
        now = peek(page, page + PAGE)
        if now is None:
            return ()
        changed = changed_ranges(page, touch.page, now)
        return merged((max(low, span.base), min(high, span.end)) for low, high in changed)

    def _record(self, thread: int, reads: Ranges, writes: Ranges) -> None:
        session = self._session
        stack, lane = session.stack(), session.thread_lane(thread)
        recorder = session.recorder
        if reads:
            recorder.host(lane, recorder.label("host read (raw)", stack), stack, reads, ())
        if writes:
            recorder.host(lane, recorder.label("host write (raw)", stack), stack, (), writes)
        for low, high in writes:
            self._kept.forget(low, high)
            span = session.spans.find(low)
            if span is not None:
                self._kept.touched(span.base, span.end, thread)

    def _blame(self, changed: list[KeptEntry], noticed: str = "noticed") -> None:
        """Bytes are others than when an operation was given them, and nobody has reported it.
        noticed: words for when, if not at the line where the program is
        """
        for kept in changed:
            ranges = kept.changed()
            if kept.toucher is not None:
                self._record(kept.toucher, (), ranges)
            elif ranges and self._refuse_write is not None:
                self._refuse_write(ranges[0][0], f"{_words(kept, ranges)}; {noticed}")


def _words(kept: KeptEntry, ranges: Ranges) -> str:
    access = kept.access
    file, line, function = access.stack[0] if access.stack else ("?", 0, "?")
    return (
        f"{size_of(ranges)} of {len(kept.data)} bytes, from byte {ranges[0][0] - kept.low} on, "
        f"since {access.label} ({file}:{line} in {function})"
    )
