"""Transitions: when two of them conflict, and which precede which."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from racegate.device.protocol import writes
from racegate.device.stepping import Transition, conflict, flag_of
from racegate.device.virtual.device import VirtualDevice
from racegate.history.edge import Edge
from racegate.history.trace import HOST, Access

EDGE = Edge(name="landed", before="", after="", buffers=(), reason="")
CELLS = [
    Access("a", storage, rows, is_write)
    for storage, rows, is_write in product((1, 2), (0b01, 0b10, 0b11), (False, True))
]


def touching(*accesses: Access) -> Transition:
    return Transition(1, 1, "", accesses, (), 0)


def test_a_conflict_is_a_pair_of_accesses_in_common_rows_one_of_them_writing() -> None:
    for one, two, other in product(CELLS, CELLS, CELLS):
        expected = any(
            (each.storage, True) == (other.storage, each.is_write or other.is_write)
            and each.rows & other.rows > 0
            for each in (one, two)
        )
        assert conflict(touching(one, two), touching(other)) is expected
        assert conflict(touching(other), touching(one, two)) is expected


def test_every_operation_has_a_flag_of_its_own_which_is_no_memory() -> None:
    flags = [flag_of(lane, seq) for lane, seq in product(range(1, 5), range(1, 6))]
    assert len({flag.storage for flag in flags}) == len(flags)
    assert all(flag.storage < 0 and flag.is_write and flag.rows == 1 for flag in flags)
    asked = Access("flag", flags[0].storage, 1, False)
    assert conflict(touching(flags[0]), touching(asked))


class Keeping:
    """A stepper that takes the last that is offered, host or not, and keeps what it took."""

    def __init__(self) -> None:
        self.taken: list[Transition] = []

    def choose(self, enabled: Sequence[Transition]) -> int:
        self.taken.append(enabled[-1])
        return len(enabled) - 1


def fill(kernels: Any, target: np.ndarray) -> None:
    target[...] = 1


def program(stepper: Keeping) -> None:
    """Two streams, one behind the other, and a host that looks at what a third one left."""
    device = VirtualDevice(("main", "side", "copy"), chooser=stepper)
    main, side, copy = (device.stream(lane) for lane in ("main", "side", "copy"))
    cells = device.device_buffer("cells", (2,), np.int32, stream=main)
    landing = device.host_buffer("landing", (2,), np.int32)
    first, landed = device.event("first"), device.event("landed")
    landing.write(np.zeros(2, np.int32))
    device.launch(main, fill, "first", step=0, uses=(writes(cells),))
    device.record(main, first)
    device.wait_stream(side, first, EDGE, step=0)
    device.launch(side, fill, "second", step=0, uses=(writes(cells),))
    device.download(copy, landing, cells, "cells", step=0, rows=2)
    device.record(copy, landed)
    landing.write(np.ones(2, np.int32))
    assert device.query(landed, step=0) in (False, True)
    device.wait_host(landed, EDGE, step=0)
    landing.peek()
    landing.write(np.ones(2, np.int32))
    device.finish()


def test_clocks_count_what_program_edges_put_before_a_transition() -> None:
    stepper = Keeping()
    program(stepper)
    host = [one for one in stepper.taken if one.process == HOST]
    assert [one.ordinal for one in host] == list(range(1, len(host) + 1))
    for one in host:
        assert one.clock[HOST] == one.ordinal - 1
    for each in stepper.taken:
        before = [one for one in host if one.issued <= each.issued and one is not each]
        assert each.clock[HOST] == len(before), each.label
    ops = {one.label: one for one in stepper.taken if one.process != HOST}
    assert ops["kernel:second@0"].clock[1] == ops["kernel:first@0"].ordinal
    assert ops["d2h:cells@0"].clock[1:3] == (0, 0)
    # Behind its wait the host knows the copy, and nothing of the others.
    assert host[-1].clock[3] == ops["d2h:cells@0"].ordinal
    assert host[0].clock[3] == 0


def test_the_places_of_transitions_are_in_the_order_of_the_program() -> None:
    stepper = Keeping()
    program(stepper)
    places = [one.issued for one in sorted(stepper.taken, key=lambda one: one.issued)]
    assert len(set(places)) == len(places)
    for process in range(4):
        own = [one for one in stepper.taken if one.process == process]
        assert [one.issued for one in own] == sorted(one.issued for one in own)


def test_a_query_reads_the_flag_that_the_operation_writes() -> None:
    stepper = Keeping()
    program(stepper)
    flags = [one for one in stepper.taken if any(a.buffer == "flag" for a in one.accesses)]
    host = [one for one in flags if one.process == HOST]
    copy = [one for one in flags if one.label == "d2h:cells@0"]
    assert len(host) == len(copy) == 1 and conflict(host[0], copy[0])
