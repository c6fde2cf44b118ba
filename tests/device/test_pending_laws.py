"""What the pending queues keep: everything that may complete does, every step is the stepper's,
queries know what the host knows, and a number that stands for contents changes with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from racegate.device.chooser import HoldChooser
from racegate.device.cuda.site import CudaSite
from racegate.device.masks import prefix_mask
from racegate.device.protocol import Event, writes
from racegate.device.stepping import Transition
from racegate.device.virtual.device import VirtualDevice
from racegate.device.virtual.memo import OpMemo
from racegate.history.edge import Edge
from racegate.history.schedule import EAGER, parse_schedule
from racegate.history.trace import HOST, OpRecord, Queried
from sync_driver import SyncDriver

EDGE = Edge(name="landed", before="", after="", buffers=(), reason="")
LANES = ("main", "side", "copy")


def fill(kernels: Any, target: np.ndarray, *, value: int) -> None:
    target[...] = value


def launched(device: VirtualDevice, lane: str, name: str) -> Event:
    """An operation on a lane, and an event behind it."""
    stream = device.stream(lane)
    buffer = device.device_buffer(f"{name}_gpu", (2,), np.int32, stream=stream)
    device.launch(stream, fill, name, step=0, uses=(writes(buffer),), value=1)
    event = device.event(name)
    device.record(stream, event)
    return event


def test_what_waited_for_what_the_host_waits_for_goes_on() -> None:
    """The host waits on one stream; another waits for the same, and nothing more is issued."""
    hold = parse_schedule(["main/kernel:first@0 until host:never@0"])
    device = VirtualDevice(LANES, chooser=HoldChooser(hold))
    first = launched(device, "main", "first")
    device.wait_stream(device.stream("side"), first, EDGE, step=0)
    launched(device, "side", "second")
    assert device.has_pending
    device.wait_host(first, EDGE, step=0)
    assert not device.has_pending


class Recording:
    """A stepper that takes the last one that is offered, and keeps what it took."""

    def __init__(self) -> None:
        self.taken: list[Transition] = []

    def choose(self, enabled: Sequence[Transition]) -> int:
        host = [place for place, one in enumerate(enabled) if one.process == HOST]
        chosen = host[0] if host else len(enabled) - 1
        self.taken.append(enabled[chosen])
        return chosen


def test_a_stepper_takes_every_operation_those_behind_the_host_too() -> None:
    stepper = Recording()
    device = VirtualDevice(LANES, chooser=stepper)
    for lane in LANES:
        launched(device, lane, f"on_{lane}")
    trace = device.finish()
    issued = [event.name for event in trace.events if isinstance(event, OpRecord)]
    taken = [one.label for one in stepper.taken if one.process != HOST]
    assert sorted(taken) == sorted(issued) and taken == issued[::-1]


@pytest.mark.parametrize("waited", LANES)
@pytest.mark.parametrize("asked", LANES)
def test_a_query_is_ordered_exactly_if_the_host_waited(waited: str, asked: str) -> None:
    device = VirtualDevice(LANES, chooser=HoldChooser(EAGER))
    events = {lane: launched(device, lane, lane) for lane in LANES}
    device.wait_host(events[waited], EDGE, step=0)
    device.query(events[asked], step=0)
    (query,) = (event for event in device.finish().events if isinstance(event, Queried))
    assert query.is_ordered == (waited == asked)


ROWS = 4
# By what it does: two calls that leave other contents.
CHANGES = [
    (("write", [[9, 9]]), ("write", [[8, 9]])),
    (("write", [[9, 9], [9, 9]]), ("write", [[9, 9], [8, 9]])),
    (("write_row", 1, 9), ("write_row", 1, 8)),
    (("write_row", 1, 9), ("write_row", 2, 9)),
    (("write_columns", 1, 1, [9]), ("write_columns", 1, 1, [8])),
    (("write_columns", 1, 0, [9]), ("write_columns", 1, 1, [9])),
    (("move_row", 0, 1), ("move_row", 0, 2)),
    (("move_row", 0, 1), ("move_row", 2, 1)),
    (("swap_rows", 0, 1), ("swap_rows", 0, 2)),
    (("swap_rows", 0, 1), ("swap_rows", 2, 1)),
]


@pytest.mark.parametrize(("one", "other"), CHANGES, ids=str)
def test_contents_that_differ_have_other_numbers(
    one: tuple[Any, ...], other: tuple[Any, ...]
) -> None:
    memo = OpMemo()
    numbers = []
    for name, *arguments in (one, other, one):
        buffer = VirtualDevice(LANES, memo=memo).host_buffer("a", (ROWS, 2), np.int32)
        buffer.write(np.arange(2 * ROWS).reshape(ROWS, 2))
        getattr(buffer, name)(*arguments)
        numbers.append(buffer.storage.content)
    first, second, again = numbers
    assert first == again != second


@pytest.mark.parametrize("rows", [0, 1, 31, 64, 4095, 4096, 4097, 5000])
def test_a_prefix_has_as_many_rows_as_it_says(rows: int) -> None:
    mask = prefix_mask(rows)
    assert (mask.bit_count(), mask.bit_length()) == (rows, rows)


def test_a_site_has_expired_with_its_last_device() -> None:
    site = CudaSite(SyncDriver())
    assert not site.has_expired
    site.device(LANES, schedule=EAGER).close()
    assert not site.has_expired
