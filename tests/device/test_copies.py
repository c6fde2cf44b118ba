"""Copies, constants, freed memory and latches: the same laws on both devices."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

from numpy_backend import numpy_backend
from racegate.device.chooser import HoldChooser
from racegate.device.cuda import latches as latches_module
from racegate.device.cuda.device import CudaDevice
from racegate.device.cuda.driver import bits_of
from racegate.device.cuda.latches import Latches
from racegate.device.cuda.pacing import Pace, Pacing
from racegate.device.memory import DeviceBuffer, HostBuffer
from racegate.device.protocol import Device
from racegate.device.virtual.copies import copy_range
from racegate.device.virtual.device import VirtualDevice
from racegate.history.edge import Edge
from racegate.history.schedule import EAGER, parse_schedule
from racegate.history.trace import OpRecord
from racegate.oracles.ordering import find_conflicts
from racegate_kernels.poison import poison_of
from sync_driver import SyncDriver

EDGE = Edge(name="landed", before="", after="", buffers=(), reason="")
LANES = ("main", "copy")
ROWS = 4


def virtual(seed: int | None = None) -> Device:
    return VirtualDevice(LANES, chooser=HoldChooser(EAGER))


def cuda(seed: int | None = None, pacing: Pacing = Pacing.NATURAL) -> Device:
    driver = SyncDriver(numpy_backend(), random=None if seed is None else Random(seed))
    return CudaDevice(LANES, driver, pace=Pace(pacing), chooser=HoldChooser(EAGER))


def eager(seed: int | None = None) -> Device:
    return cuda(seed, Pacing.EAGER)


DEVICES = [virtual, cuda, eager]
MADE = pytest.mark.parametrize("make", DEVICES, ids=lambda make: make.__name__)
Copy = Callable[[Device, DeviceBuffer, HostBuffer], None]
COPIES: dict[str, Copy] = {
    "h2d:pool": lambda d, pool, rows: d.upload(d.stream("main"), pool, rows, step=0, rows=2),
    "d2h:back": lambda d, pool, rows: d.download(
        d.stream("main"), rows, pool, "back", step=0, rows=2
    ),
    "h2d:put": lambda d, pool, rows: d.upload_blocks(
        d.stream("main"), pool, rows, "put", step=0, blocks=(3, 1)
    ),
    "d2h:get": lambda d, pool, rows: d.download_blocks(
        d.stream("main"), rows, pool, "get", step=0, blocks=(3, 1)
    ),
}
# What a copy reads and writes: rows, as masks.
TOUCHED = {
    "h2d:pool": (0b0011, 0b0011),
    "d2h:back": (0b0011, 0b0011),
    "h2d:put": (0b0011, 0b1010),
    "d2h:get": (0b1010, 0b0011),
}


def buffers(device: Device) -> tuple[DeviceBuffer, HostBuffer]:
    pool = device.device_buffer("pool_gpu", (ROWS, 2), np.int32, stream=device.stream("main"))
    return pool, device.host_buffer("rows_cpu", (ROWS, 2), np.int32)


@MADE
@pytest.mark.parametrize("name", COPIES)
def test_a_copy_says_what_it_reads_and_writes(make: Callable[[], Device], name: str) -> None:
    device = make()
    pool, rows = buffers(device)
    rows.write(np.zeros((ROWS, 2), np.int32))
    COPIES[name](device, pool, rows)
    (op,) = (e for e in device.finish().events if isinstance(e, OpRecord) and name in e.name)
    read, written = TOUCHED[name]
    source, target = ("rows_cpu", "pool_gpu") if "h2d" in name else ("pool_gpu", "rows_cpu")
    assert [(a.buffer, a.rows, a.is_write) for a in op.accesses] == [
        (source, read, False),
        (target, written, True),
    ]


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("freed", ["pool_gpu", "rows_cpu"])
@pytest.mark.parametrize("name", COPIES)
@MADE
def test_memory_that_is_freed_is_written(
    make: Callable[[], Device],
    name: str,
    freed: str,
    waits: bool,  # noqa: FBT001
) -> None:
    """A copy that may still run is in conflict with it."""
    device = make()
    rows = device.host_buffer("rows_cpu", (ROWS, 2), np.int32)
    pool = device.device_buffer("pool_gpu", (ROWS, 2), np.int32, stream=device.stream("copy"))
    rows.write(np.zeros((ROWS, 2), np.int32))
    made, landed = device.event("made"), device.event("landed")
    device.record(device.stream("copy"), made)
    device.wait_stream(device.stream("main"), made, EDGE, step=0)
    COPIES[name](device, pool, rows)
    device.record(device.stream("main"), landed)
    if waits:
        device.wait_host(landed, EDGE, step=0)
    if freed == "pool_gpu":
        device.free(pool, step=0)
    else:
        device.free_host(rows)
    found = {(one.buffer, one.first.name) for one in find_conflicts(device.finish())}
    assert found == (set() if waits else {(freed, f"{name}@0")})
    if isinstance(device, CudaDevice):
        device.close()


@MADE
@pytest.mark.parametrize("name", COPIES)
@pytest.mark.parametrize("freed", ["pool_gpu", "rows_cpu"])
def test_no_copy_touches_freed_memory(make: Callable[[], Device], name: str, freed: str) -> None:
    device = make()
    pool, rows = buffers(device)
    if freed == "pool_gpu":
        device.free(pool, step=0)
    else:
        device.free_host(rows)
    source, target = ("rows_cpu", "pool_gpu") if "h2d" in name else ("pool_gpu", "rows_cpu")
    said = f"from {source} to {target}" if freed == target else f"to {target} from {source}"
    with pytest.raises(AssertionError, match=f"{said}, which is free"):
        COPIES[name](device, pool, rows)
    if isinstance(device, CudaDevice):
        device.close()


@MADE
def test_what_comes_back_is_what_went(make: Callable[[int], Device]) -> None:
    for seed in range(4):
        device = make(seed)
        main, copy = device.stream("main"), device.stream("copy")
        pool, rows = buffers(device)
        back, landed = device.host_buffer("back_cpu", (ROWS, 2), np.int32), device.event("landed")
        rows.write(np.arange(8).reshape(ROWS, 2))
        device.upload(main, pool, rows, step=0, rows=ROWS)
        device.upload_blocks(main, pool, rows, "put", step=0, blocks=(3, 1))
        device.record(main, landed)
        device.wait_stream(copy, landed, EDGE, step=0)
        device.download_blocks(copy, back, pool, "get", step=0, blocks=(3, 2, 1, 0))
        device.record(copy, landed)
        device.wait_host(landed, EDGE, step=0)
        assert back.peek().tolist() == [[0, 1], [4, 5], [2, 3], [0, 1]]
        device.finish()


def double(kernels: Any, target: Any, source: Any) -> None:
    target[...] = 2 * source


@MADE
def test_a_constant_is_there_before_any_stream_goes_on_and_belongs_to_none(
    make: Callable[[int], Device],
) -> None:
    from racegate.device.protocol import reads, writes

    for seed in range(4):
        device = make(seed)
        stream, landed = device.stream("copy"), device.event("landed")
        target = device.device_buffer("twice", (ROWS, 2), np.int32, stream=stream)
        landing = device.host_buffer("landing", (ROWS, 2), np.int32)
        for factor in (1, 10):  # the second one is made while streams are at work
            values = np.arange(8, dtype=np.int32).reshape(ROWS, 2) * factor
            known = device.constant("known", values)
            assert known.lane == 0
            device.launch(
                stream, double, "double", step=factor, uses=(writes(target), reads(known))
            )
            device.download(stream, landing, target, "twice", step=factor, rows=ROWS)
            device.record(stream, landed)
            device.wait_host(landed, EDGE, step=factor)
            assert landing.peek().tolist() == (2 * values).tolist()
        device.finish()


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.float32, np.float16])
def test_a_word_of_poison_is_poison_in_every_element(dtype: type) -> None:
    word = np.array([bits_of(poison_of(dtype), dtype)], np.uint32)
    assert (
        word.view(dtype).view(np.uint8)
        == np.array([poison_of(dtype)] * (4 // np.dtype(dtype).itemsize), dtype).view(np.uint8)
    ).all()


@MADE
def test_an_event_that_was_never_recorded_is_complete(make: Callable[[], Device]) -> None:
    device = make()
    assert device.query(device.event("never"), step=0) is True
    device.finish()


class TestLatchWords:
    """Every latch has a word of its own, in as many blocks as it takes."""

    def make(self, count: int, monkeypatch: pytest.MonkeyPatch) -> tuple[SyncDriver, Latches, Any]:
        monkeypatch.setattr(latches_module, "WORDS_PER_BLOCK", 4)
        driver = SyncDriver()
        stream = driver.stream()
        return driver, Latches(driver, stream), stream

    def test_words_are_used_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        _, latches, _ = self.make(10, monkeypatch)
        made = [latches.make() for _ in range(10)]
        assert [latch.index for latch in made] == [0, 1, 2, 3] * 2 + [0, 1]
        blocks = [id(latch.block) for latch in made]
        assert len(set(blocks)) == 3 and blocks == [blocks[0]] * 4 + [blocks[4]] * 4 + blocks[8:]
        assert blocks[8] == blocks[9]

    def test_evidence_is_of_the_latch_that_was_passed(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        driver, latches, stream = self.make(10, monkeypatch)
        made = [latches.make() for _ in range(10)]
        for latch in made[:8]:
            latches.put(stream, latch)
        for latch in made[:6]:
            latches.open(latch)
            latches.open(latch)  # a second time changes nothing
        assert [latch.opened for latch in made] == [1, 2, 3, 4, 5, 6, 0, 0, 0, 0]
        latches.expire()
        latches.gather()
        assert [latch.is_confirmed for latch in made] == [True] * 6 + [False] * 4
        late = latches.make()
        latches.put(stream, late)
        driver.drain()  # is open: would be stuck
        latches.open(late)
        assert late.opened == 0

    def test_what_the_queues_say_without_evidence_is_counted_by_hold(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _, latches, stream = self.make(4, monkeypatch)
        texts = [
            "kernel:a@0 until host:see@0",
            "kernel:a@0 until forced",
            "kernel:b@0 until forced",
        ]
        chooser = HoldChooser(parse_schedule(texts))
        made = []
        for name in ("kernel:a@0", "kernel:b@0", "kernel:a@0"):
            latch = latches.make(chooser.ticket("main", name))
            made.append(latch)
            latches.put(stream, latch)
        latches.open(made[0])
        chooser.reach("host:see@0")
        latches.expire()
        latches.gather()
        # The first was opened by the host, the others by nobody; the third let go of its point.
        assert latches.unconfirmed() == {texts[0]: 1, texts[1]: 1, texts[2]: 1}


@pytest.mark.parametrize("first", [0, 1, 3])
def test_a_part_of_a_copy_takes_the_owners_of_its_rows(first: int) -> None:
    """And no others: behind it each row has one, as before."""
    device = VirtualDevice(LANES, chooser=HoldChooser(EAGER))
    source, target = (
        device.device_buffer(name, (ROWS,), np.int32, stream=device.stream("main"))
        for name in ("source", "target")
    )
    source.storage.owners[:] = [("A", row) for row in range(ROWS)]
    target.storage.owners[:] = [("B", row) for row in range(ROWS)]
    source.storage.array[:] = range(ROWS)
    copy_range(target, source, first, ROWS, None)()
    expected = [("B", row) for row in range(first)] + [("A", row) for row in range(first, ROWS)]
    assert target.storage.owners == expected
    assert target.storage.array[first:].tolist() == list(range(first, ROWS))
