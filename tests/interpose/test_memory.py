"""Memory by address: what the runtime handed out, and whose it is now."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from bare_session import no_pages
from racegate.interpose.device.calls import LoggedRuntime
from racegate.interpose.device.guards import PAGE, Guards
from racegate.interpose.device.library import GivenWork, LogEntry, Logged
from racegate.interpose.device.session import Session
from racegate.interpose.device.spans import AllocationSites, Place, Spans


def test_an_address_belongs_to_the_span_around_it() -> None:
    spans = Spans()
    spans.add(1000, 100, Place.DEVICE, is_whole_pages=False)
    spans.add(2000, 100, Place.PINNED, is_whole_pages=True)
    assert [spans.place(address) for address in (999, 1000, 1099, 1100, 2050)] == [
        Place.PAGEABLE,
        Place.DEVICE,
        Place.DEVICE,
        Place.PAGEABLE,
        Place.PINNED,
    ]
    assert spans.pinned == 1
    spans.remove(2000)
    assert (spans.pinned, spans.find(2050)) == (0, None)


def test_the_latest_owner_of_a_block_counts_through_splits_and_joins() -> None:
    sites = AllocationSites()
    sites.add(0, 100, 1, (("a.py", 1, "f"),))
    sites.add(50, 10, 2, (("b.py", 2, "f"),))
    sites.add(0, 50, 3, (("c.py", 3, "f"),))

    def owner(address: int) -> int | None:
        found = sites.find(address)
        return found[1] if found is not None else None

    assert [owner(address) for address in (0, 49, 50, 59)] == [3, 3, 2, 2]
    sites.add(0, 100, 4, ())
    assert {owner(address) for address in range(100)} == {4}


class Pages:
    """What the system would have done. modes: of each page that is not open"""

    def __init__(self) -> None:
        self.modes: dict[int, int] = {}

    def set(self, low: int, high: int, *, mode: int) -> bool:
        for page in range(low // PAGE, -(-high // PAGE)):
            self.modes[page] = mode
            if mode == 2:
                del self.modes[page]
        return True


@pytest.fixture
def pages() -> Pages:
    return Pages()


@pytest.fixture
def guards(pages: Pages) -> Guards:
    return Guards(pages.set)


def test_pages_open_when_the_host_has_waited(guards: Guards, pages: Pages) -> None:
    assert guards.close(8192, 8200, lane=1, number=3, is_write=True)
    guards.lift(20000, 20001)
    guards.arrive([0, 2])
    assert pages.modes == {2: 0}
    guards.arrive([0, 3])
    assert (pages.modes, guards.has_any()) == ({}, False)


def test_an_access_opens_a_page_until_its_thread_goes_on(guards: Guards, pages: Pages) -> None:
    guards.close(8192, 8200, lane=1, number=4, is_write=False)
    guards.lift(9000, 9001)  # the same page
    assert pages.modes == {}
    other = threading.Thread(target=guards.settle)
    other.start()
    other.join()
    assert pages.modes == {}
    guards.settle()
    assert pages.modes == {2: 1}


def test_a_page_of_two_operations_is_as_closed_as_the_stricter_needs(
    guards: Guards, pages: Pages
) -> None:
    guards.close(8192, 9000, lane=1, number=1, is_write=True)
    guards.close(9000, 20000, lane=2, number=1, is_write=False)
    assert pages.modes == {2: 0, 3: 1, 4: 1}
    guards.arrive([0, 0, 1])
    assert pages.modes == {2: 0}
    guards.close(9000, 20000, lane=2, number=2, is_write=False)
    guards.arrive([0, 1])
    assert pages.modes == {2: 1, 3: 1, 4: 1}


def test_a_page_that_another_thread_touches_stays_open(guards: Guards, pages: Pages) -> None:
    guards.close(8192, 8200, lane=1, number=1, is_write=True)
    other = threading.Thread(target=lambda: guards.lift(8192, 8200))
    other.start()
    other.join()
    guards.close(8192, 12300, lane=2, number=1, is_write=False)
    guards.settle()
    assert pages.modes == {}


def test_pages_that_cannot_be_closed_are_known() -> None:
    guards = Guards(no_pages)
    assert not guards.close(8192, 8200, lane=1, number=1, is_write=True)
    assert not guards.has_any()


def test_many_ranges_are_one_for_each_pinned_span() -> None:
    spans = Spans()
    spans.add(1000, 100, Place.DEVICE, is_whole_pages=True)
    spans.add(8192, 100, Place.PINNED, is_whole_pages=True)
    spans.add(16384, 100, Place.PINNED, is_whole_pages=True)
    ranges = ((1000, 1010), (8190, 8196), (8200, 8204), (8210, 8300))
    assert spans.pinned_hulls(ranges) == ((8192, 8292),)


class HalfRead:
    """A library of whose log one thread has read an allocation, and not told it, when another looks
    for the memory.
    """

    lands_at_once = True

    def __init__(self) -> None:
        self.news = [1, 0]
        self.work = GivenWork()
        self.found: list[object] = []
        self.session = Session(LoggedRuntime(self))  # type: ignore[arg-type]
        self.other = threading.Thread(target=self._look)

    def has_left(self) -> bool:
        return False

    def take_news(self) -> None:
        self.news[0] = 0

    def drain(self) -> Iterator[LogEntry]:
        if not self.other.ident:
            self.other.start()
            self.other.join(0.05)  # it has looked by then, if nothing keeps it
            yield LogEntry(Logged.MALLOC, 0, 8192, 100, 0, 0)

    def _look(self) -> None:
        self.session.drain()
        self.found.append(self.session.spans.find(8192))

    def guard(self, low: int, high: int, *, mode: int) -> bool:
        return False

    def thread_number(self) -> int:
        return threading.get_ident()

    def settle_event(self, event: int, version: int) -> None:
        """Nobody asks."""


def test_what_another_thread_is_taking_in_is_waited_for() -> None:
    library = HalfRead()
    library.session.drain()
    library.other.join()
    assert library.found == [library.session.spans.find(8192)] != [None]
