"""The ownership oracle: whose value was read, by request and by step, on the host and in
operations, whatever way the value took.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from racegate.device.chooser import HoldChooser
from racegate.device.protocol import HostBuffer, Use, reads, updates, writes
from racegate.device.virtual.device import VirtualDevice
from racegate.history.edge import Edge
from racegate.history.schedule import LATE
from racegate.history.trace import Misowned, Owner
from racegate.oracles.ownership import find_misowned
from racegate_kernels.backend import Backend

LANES = ("main",)
ROWS = 4
LANDED = Edge(name="landed", before="", after="", buffers=(), reason="")
A3, A4, B3 = ("A", 3), ("A", 4), ("B", 3)


@dataclass
class Cells:
    """A buffer on the device and one on the host, of ROWS cells each."""

    device: VirtualDevice = field(default_factory=lambda: VirtualDevice(LANES))

    def __post_init__(self) -> None:
        self.main = self.device.stream("main")
        self.gpu = self.device.device_buffer("cells_gpu", (ROWS,), np.int32, stream=self.main)
        self.cpu = self.device.host_buffer("cells_cpu", (ROWS,), np.int32)

    def run(self, use: Use, *, step: int = 5) -> None:
        """An operation with one use, which computes nothing."""
        self.device.launch(self.main, _nothing, "look", step=step, uses=(use,))

    def download(self, *, step: int = 3, rows: int = ROWS) -> None:
        self.device.download(self.main, self.cpu, self.gpu, "cells", step=step, rows=rows)

    def found(self) -> list[tuple[str, int, Owner, Owner | None]]:
        """(reader, row, expected, actual) of each finding."""
        misowned = find_misowned(self.device.finish())
        return [(event.name, event.row, event.expected, event.actual) for event in misowned]


def _nothing(k: Backend, cells: np.ndarray) -> None:
    """A kernel that leaves everything as it is."""


def host_with(*owners: Owner | None) -> Cells:
    """Cells whose host rows belong to these."""
    cells = Cells()
    for row, owner in enumerate(owners):
        cells.cpu.write_row(row, row, own=owner)
    return cells


@pytest.mark.parametrize("expected", [A4, B3, ("B", 4)])
def test_a_value_of_another_request_or_of_another_step_is_a_finding(expected: Owner) -> None:
    cells = host_with(A3)
    cells.cpu.read_row(0, expect=expected)
    assert cells.found() == [("host:start", 0, expected, A3)]


def test_the_right_owner_is_none() -> None:
    cells = host_with(A3, B3)
    cells.cpu.read_row(1, expect=B3)
    cells.cpu.read(2, expect=(A3, B3))
    assert cells.found() == []


def test_who_expects_nobody_is_not_asked() -> None:
    cells = host_with(A3, B3)
    cells.cpu.read(2, expect=(None, A3))
    assert cells.found() == [("host:start", 1, A3, B3)]


def test_poison_is_nobodys() -> None:
    cells = Cells()
    cells.cpu.read_row(2, expect=A3)
    cells.run(reads(cells.gpu, expect=((1, A3),)))
    assert cells.found() == [("host:start", 2, A3, None), ("kernel:look@5", 1, A3, None)]


def test_a_write_without_an_owner_takes_the_cell_from_its_owner() -> None:
    cells = host_with(A3)
    cells.cpu.write_row(0, 1)
    cells.cpu.read_row(0, expect=A3)
    assert cells.found() == [("host:start", 0, A3, None)]


def test_operations_check_what_they_read_and_own_what_they_write() -> None:
    cells = Cells()
    cells.run(writes(cells.gpu, 2, own=(A3, B3)), step=3)
    cells.run(updates(cells.gpu, 2, expect=((0, A3), (1, A3)), own=(A4, A4)), step=4)
    cells.run(reads(cells.gpu, expect=((0, A4), (1, A4))), step=5)
    (event,) = find_misowned(cells.device.finish())
    assert (event.name, event.row, event.expected, event.actual) == ("kernel:look@4", 1, A3, B3)
    assert event.step == 4, "the step that reads, not the one that wrote"


def test_a_copy_carries_owners_of_its_rows_only() -> None:
    cells = host_with(A3, A3, A3)
    cells.run(writes(cells.gpu, 3, own=(B3, B3, B3)))
    cells.download(rows=2)
    cells.cpu.read(3, expect=(B3, B3, B3))
    assert cells.found() == [("host:start", 2, B3, A3)]


def test_freed_memory_is_nobodys() -> None:
    cells = Cells()
    cells.run(writes(cells.gpu, 1, own=(A3,)))
    cells.device.free(cells.gpu, step=4)
    again = cells.device.device_buffer("again_gpu", (ROWS,), np.int32, stream=cells.main)
    cells.run(reads(again, expect=((0, A3),)))
    assert cells.found() == [("kernel:look@5", 0, A3, None)]


def test_an_owner_is_known_when_the_operation_runs_not_when_it_is_issued() -> None:
    cells = Cells(VirtualDevice(LANES, chooser=HoldChooser(LATE)))
    landed = cells.device.event("landed")
    cells.cpu.write(np.zeros(ROWS, np.int32), own=(A3,) * ROWS)
    cells.run(writes(cells.gpu, own=(B3,) * ROWS))
    cells.download()
    cells.device.record(cells.main, landed)
    cells.cpu.read_row(0, expect=A3)
    cells.device.wait_host(landed, LANDED, step=3)
    cells.cpu.read_row(0, expect=A3)
    assert cells.found() == [("host:start", 0, A3, B3)]


owners = st.sampled_from((A3, A4, B3))
rows = st.integers(0, ROWS - 1)
moves = st.one_of(
    st.tuples(st.just("write"), rows, st.none() | owners),
    st.tuples(st.just("columns"), rows),
    st.tuples(st.just("move"), rows, rows),
    st.tuples(st.just("swap"), rows, rows),
    st.tuples(st.just("read"), rows, owners),
)


@given(st.lists(moves, max_size=30))
def test_every_way_of_the_host_keeps_count_of_owners(
    program: list[tuple[str, int, int | Owner | None]],
) -> None:
    device = VirtualDevice(LANES)
    buffer = device.host_buffer("cells", (ROWS, 2), np.int32)
    owners: list[Owner | None] = [None] * ROWS
    wrong = []
    for number, statement in enumerate(program):
        with device.action("do", step=number):
            wrong += _do(buffer, owners, statement, number)
    events = find_misowned(device.finish())
    assert [(e.name, e.step, e.buffer, e.row, e.expected, e.actual) for e in events] == wrong


def _do(
    buffer: HostBuffer, owners: list[Owner | None], statement: tuple, number: int
) -> list[tuple]:
    """One statement, on the buffer and on a list of owners; what a reader finds there wrongly."""
    match statement:
        case ("write", row, owner):
            buffer.write_row(row, 7, own=owner)
            owners[row] = owner
        case ("columns", row):
            buffer.write_columns(row, 1, [5])
        case ("move", source, target):
            buffer.move_row(source, target)
            owners[target] = owners[source]
        case ("swap", first, second):
            buffer.swap_rows(first, second)
            owners[first], owners[second] = owners[second], owners[first]
        case ("read", row, owner):
            buffer.read_row(row, expect=owner)
            if owners[row] != owner:
                return [(f"host:do@{number}", number, "cells", row, owner, owners[row])]
    return []


def test_only_findings_of_ownership_are_taken() -> None:
    cells = host_with(A3)
    cells.run(writes(cells.gpu, 1, own=(A3,)))
    cells.download(rows=1)
    cells.cpu.read_row(0, expect=B3)
    (event,) = find_misowned(cells.device.finish())
    assert event == Misowned("host:start", -1, "cells_cpu", 0, B3, A3)
