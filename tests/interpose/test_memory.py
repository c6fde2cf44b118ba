"""Memory by address: what the runtime handed out, and whose it is now."""

from __future__ import annotations

from racegate.interpose.device.guards import Guards
from racegate.interpose.device.spans import Births, Place, Spans


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
    births = Births()
    births.add(0, 100, 1, (("a.py", 1, "f"),))
    births.add(50, 10, 2, (("b.py", 2, "f"),))
    births.add(0, 50, 3, (("c.py", 3, "f"),))

    def owner(address: int) -> int | None:
        found = births.find(address)
        return found[1] if found is not None else None

    assert [owner(address) for address in (0, 49, 50, 59)] == [3, 3, 2, 2]
    births.add(0, 100, 4, ())
    assert {owner(address) for address in range(100)} == {4}


def test_pages_open_at_a_reported_access_and_when_the_host_has_waited() -> None:
    log: list[tuple[int, int, int]] = []

    def set_pages(low: int, high: int, *, mode: int) -> bool:
        log.append((low, high, mode))
        return True

    guards = Guards()
    guards.set_pages = set_pages
    guards.close(8192, 8200, lane=1, number=3, is_write=True)
    guards.open(20000, 20001)
    guards.arrive([0, 2])
    assert log == [(8192, 8200, 0)]
    guards.arrive([0, 3])
    assert log[-1] == (8192, 8200, 2)
    guards.close(8192, 8200, lane=1, number=4, is_write=False)
    guards.open(9000, 9001)  # the same page
    assert log[-2:] == [(8192, 8200, 1), (8192, 8200, 2)]
    assert not guards.has_any()
