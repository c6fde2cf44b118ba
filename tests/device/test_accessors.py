"""What an access is recorded as against what it does: every way to a buffer, of the host and of
copies. A row is read if another value there would change what comes back or what stands in another
row, and written if it may stand there otherwise afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from racegate.device.memory import Storage
from racegate.device.protocol import DeviceBuffer, HostBuffer, Stream
from racegate.device.virtual.device import VirtualDevice
from racegate.device.virtual.memo import OpMemo
from racegate.history.trace import HostAccess, OpRecord, rows_of

LANES = ("main",)
ROWS = 4
COLUMNS = 3

Cell = tuple[str, int]


@dataclass(frozen=True)
class Pair:
    """A buffer of the host and one of the device, with the same shape."""

    device: VirtualDevice
    main: Stream
    cpu: HostBuffer
    gpu: DeviceBuffer

    @property
    def buffers(self) -> dict[str, HostBuffer | DeviceBuffer]:
        """By name."""
        return {"cpu": self.cpu, "gpu": self.gpu}


Way = Callable[[Pair], Any]

row = st.integers(0, ROWS - 1)
count = st.integers(1, ROWS)
blocks = st.lists(row, min_size=1, unique=True)
two_rows = st.lists(row, min_size=2, max_size=2, unique=True)
NEW = np.arange(900, 900 + ROWS * COLUMNS, dtype=np.int32).reshape(ROWS, COLUMNS)


def _write(first: int, rows: int) -> Way:
    rows = min(rows, ROWS - first)
    return lambda pair: pair.cpu.write(NEW[:rows], row_first=first)


def _columns(at: int, first: int) -> Way:
    return lambda pair: pair.cpu.write_columns(at, first, [7] * (COLUMNS - first))


def _upload(rows: int) -> Way:
    return lambda pair: pair.device.upload(pair.main, pair.gpu, pair.cpu, step=0, rows=rows)


def _download(rows: int) -> Way:
    return lambda pair: pair.device.download(
        pair.main, pair.cpu, pair.gpu, "cells", step=0, rows=rows
    )


def _scatter(places: list[int]) -> Way:
    return lambda pair: pair.device.upload_blocks(
        pair.main, pair.gpu, pair.cpu, "cells", step=0, blocks=places
    )


def _gather(places: list[int]) -> Way:
    return lambda pair: pair.device.download_blocks(
        pair.main, pair.cpu, pair.gpu, "cells", step=0, blocks=places
    )


WAYS = {
    "read": st.builds(lambda rows: lambda pair: pair.cpu.read(rows), count | st.none()),
    "read_row": st.builds(lambda at: lambda pair: pair.cpu.read_row(at), row),
    "write": st.builds(_write, row, count),
    "write_row": st.builds(lambda at: lambda pair: pair.cpu.write_row(at, NEW[0]), row),
    "write_columns": st.builds(_columns, row, st.integers(0, COLUMNS - 1)),
    "move_row": st.builds(lambda two: lambda pair: pair.cpu.move_row(*two), two_rows),
    "swap_rows": st.builds(lambda two: lambda pair: pair.cpu.swap_rows(*two), two_rows),
    "upload": st.builds(_upload, count),
    "download": st.builds(_download, count),
    "upload_blocks": st.builds(_scatter, blocks),
    "download_blocks": st.builds(_gather, blocks),
}


def test_no_way_to_a_buffer_is_left_out() -> None:
    # poison, free and their like are not accesses of a program; peek is an observer's.
    others = {"access", "end", "peek", "name", "storage", "shape", "dtype", "lane", "is_free"}
    host = {name for name in dir(HostBuffer) if not name.startswith("_")} - others
    copies = {name for name in dir(VirtualDevice) if "load" in name}
    assert host | copies == set(WAYS)


@given(st.one_of(*WAYS.values()))
def test_an_access_is_recorded_as_what_it_does(way: Way) -> None:
    before = {name: base + NEW for name, base in (("cpu", 100), ("gpu", 500))}
    came, after, declared = _outcome(way, before)
    written = {cell for cell in _cells() if _differs(after, before, cell)}
    read = set()
    for name, at in _cells():
        other = {key: values.copy() for key, values in before.items()}
        other[name][at] += 10_000
        came_then, after_then, declared_then = _outcome(way, other)
        assert declared_then == declared
        elsewhere = {cell for cell in _cells() if _differs(after_then, after, cell)} - {(name, at)}
        if elsewhere or not np.array_equal(came, came_then):
            read.add((name, at))
    assert declared == (read, written)


@given(st.one_of(*WAYS.values()), row, st.sampled_from((0, 10_000)))
def test_who_holds_the_same_content_holds_the_same_number_and_nobody_else(
    way: Way, at: int, more: int
) -> None:
    memo = OpMemo()
    before = {name: base + NEW for name, base in (("cpu", 100), ("gpu", 500))}
    other = {name: values.copy() for name, values in before.items()}
    other["cpu"][at] += more
    pairs = [_pair(values, memo) for values in (before, before, other)]
    unchanged = {name: buffer.storage.content for name, buffer in pairs[0].buffers.items()}
    for pair in pairs[1:]:
        way(pair)
        pair.device.finish()
    for name in before:
        first, one, two = (pair.buffers[name].storage for pair in pairs)
        assert first.content == unchanged[name]
        for a, b in ((first, one), (one, two)):
            assert np.array_equal(a.array, b.array) == (a.content == b.content)


def _cells() -> list[Cell]:
    return [(name, at) for name in ("cpu", "gpu") for at in range(ROWS)]


def _differs(one: dict[str, np.ndarray], other: dict[str, np.ndarray], cell: Cell) -> bool:
    name, at = cell
    return not np.array_equal(one[name][at], other[name][at])


def _outcome(
    way: Way, values: dict[str, np.ndarray]
) -> tuple[Any, dict[str, np.ndarray], tuple[set[Cell], set[Cell]]]:
    """(what came back, what stands there afterwards, (rows read, rows written) by the record)."""
    pair = _pair(values)
    came = way(pair)
    trace = pair.device.finish()
    after = {name: buffer.storage.array.copy() for name, buffer in pair.buffers.items()}
    found: tuple[set[Cell], set[Cell]] = (set(), set())
    for event in trace.events:
        if isinstance(event, HostAccess | OpRecord):
            accesses = (event.access,) if isinstance(event, HostAccess) else event.accesses
            for access in accesses:
                found[access.is_write].update((access.buffer, at) for at in rows_of(access.rows))
    return came, after, found


def _pair(values: dict[str, np.ndarray], memo: OpMemo | None = None) -> Pair:
    device = VirtualDevice(LANES, memo=memo)
    main = device.stream("main")
    pair = Pair(
        device,
        main,
        device.host_buffer("cpu", (ROWS, COLUMNS), np.int32),
        device.device_buffer("gpu", (ROWS, COLUMNS), np.int32, stream=main),
    )
    for name, buffer in pair.buffers.items():
        buffer.storage.array[...] = values[name]
        buffer.storage.changed(0, ROWS)
    return pair


@given(row, count)
def test_rows_that_are_written_are_whose_the_writer_says_and_no_others(
    first: int, rows: int
) -> None:
    storage, own = (
        Storage(1, np.zeros((ROWS, COLUMNS), np.int32)),
        [("B", at) for at in range(ROWS)],
    )
    storage.owners[:] = [("A", at) for at in range(ROWS)]
    expected = [*storage.owners[:first], *own[:rows], *storage.owners[first + rows :]][:ROWS]
    rows = min(rows, ROWS - first)
    storage.write(NEW[:rows], first, own[:rows])
    assert storage.owners == expected
