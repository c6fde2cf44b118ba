"""The virtual device beyond litmus programs: memory, footprints, holds, torn copies, snapshots."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from racegate.device.chooser import HoldChooser
from racegate.device.launches import union_of
from racegate.device.protocol import FootprintError, reads, updates, writes
from racegate.device.virtual.device import VirtualDevice
from racegate.history.edge import Edge
from racegate.history.schedule import LATE, Schedule, parse_schedule
from racegate.history.trace import OpRecord
from racegate_kernels.poison import POISON_I32, POISON_U32

EDGE = Edge(name="landed", before="", after="", buffers=(), reason="")
LANES = ("main", "copy")


def device_with(*holds: str, **options: Any) -> VirtualDevice:
    return VirtualDevice(LANES, chooser=HoldChooser(parse_schedule(holds)), **options)


def fill(k: Any, target: np.ndarray, *, value: int) -> None:
    target[...] = value


def launch_fill(device: VirtualDevice, buffer: Any, value: int, *, step: int = 0) -> None:
    stream = device.stream("main")
    device.launch(stream, fill, "fill", step=step, uses=(writes(buffer),), value=value)


class TestMemory:
    def test_new_device_and_host_memory_is_poison(self) -> None:
        device = device_with()
        buffer = device.device_buffer("d", (3,), np.int32, stream=device.stream("main"))
        host = device.host_buffer("h", (2,), np.uint32)
        snapshot = device.snapshot(device.stream("main"), [(buffer, None)])
        assert (snapshot.arrays()[0] == POISON_I32).all()
        assert (host.peek() == POISON_U32).all()

    def test_float_poison_is_not_a_number(self) -> None:
        host = device_with().host_buffer("h", (2,), np.float32)
        assert np.isnan(host.peek()).all()

    def test_freed_memory_is_poisoned_in_stream_order_and_reused(self) -> None:
        device = VirtualDevice(LANES, chooser=HoldChooser(LATE))
        stream = device.stream("main")
        buffer = device.device_buffer("d", (2,), np.int32, stream=stream)
        launch_fill(device, buffer, 5)
        before = device.snapshot(stream, [(buffer, None)])
        device.free(buffer, step=1)
        reused = device.device_buffer("e", (2,), np.int32, stream=stream)
        after = device.snapshot(stream, [(reused, None)])
        device.finish()
        assert before.arrays()[0].tolist() == [5, 5]
        assert after.arrays()[0].tolist() == [POISON_I32] * 2
        assert reused.storage is buffer.storage

    def test_memory_of_another_stream_is_not_reused(self) -> None:
        device = device_with()
        buffer = device.device_buffer("d", (2,), np.int32, stream=device.stream("main"))
        device.free(buffer, step=0)
        other = device.device_buffer("e", (2,), np.int32, stream=device.stream("copy"))
        assert other.storage is not buffer.storage

    def test_use_after_free_and_double_free_are_refused(self) -> None:
        device = device_with()
        buffer = device.device_buffer("d", (2,), np.int32, stream=device.stream("main"))
        device.free(buffer, step=0)
        with pytest.raises(AssertionError, match="freed twice"):
            device.free(buffer, step=0)
        with pytest.raises(AssertionError, match="after it was freed"):
            launch_fill(device, buffer, 1)
        host = device.host_buffer("h", (2,), np.int32)
        main, alive = device.stream("main"), device.host_buffer("a", (2,), np.int32)
        with pytest.raises(AssertionError, match="a copy from a to d, which is free"):
            device.upload_blocks(main, buffer, alive, "d", step=0, blocks=[1])
        with pytest.raises(AssertionError, match="a copy to a from d, which is free"):
            device.download_blocks(main, alive, buffer, "d", step=0, blocks=[1])
        device.free_host(host)
        with pytest.raises(AssertionError, match="after it was freed"):
            host.read()


class TestFootprints:
    def test_an_undeclared_write_is_caught(self) -> None:
        device = device_with(is_audited=True)
        stream = device.stream("main")
        buffer = device.device_buffer("d", (4,), np.int32, stream=stream)
        with pytest.raises(FootprintError, match=r"kernel:fill@0 wrote undeclared rows of d: .*3"):
            device.launch(
                stream, fill, "fill", step=0, uses=(writes(buffer, mask=0b0111),), value=1
            )

    def test_of_rows_that_are_read_some_may_be_written(self) -> None:
        device = device_with(is_audited=True)
        stream = device.stream("main")
        buffer = device.device_buffer("d", (4,), np.int32, stream=stream)
        all_rows = updates(buffer, mask=0b1111, written=0b0111)
        with pytest.raises(FootprintError, match=r"kernel:fill@0 wrote undeclared rows of d: .*3"):
            device.launch(stream, fill, "fill", step=0, uses=(all_rows,), value=1)
        issued = device.trace().events[-1]
        assert isinstance(issued, OpRecord)
        assert [(a.rows, a.is_write) for a in issued.accesses] == [(0b1111, False), (0b0111, True)]

    def test_a_write_to_a_buffer_declared_as_read_is_caught(self) -> None:
        device = device_with(is_audited=True)
        stream = device.stream("main")
        buffer = device.device_buffer("d", (4,), np.int32, stream=stream)
        with pytest.raises(FootprintError):
            device.launch(stream, fill, "fill", step=0, uses=(reads(buffer),), value=1)

    def test_undeclared_rows_read_as_poison(self) -> None:
        device = device_with(is_audited=True)
        stream = device.stream("main")
        source = device.device_buffer("s", (3,), np.int32, stream=stream)
        target = device.device_buffer("t", (3,), np.int32, stream=stream)
        launch_fill(device, source, 5)

        def copy(k: Any, to: np.ndarray, origin: np.ndarray) -> None:
            to[...] = origin

        uses = (writes(target), reads(source, mask=0b010))
        device.launch(stream, copy, "copy", step=0, uses=uses)
        seen = device.snapshot(stream, [(target, None)]).arrays()[0]
        assert seen.tolist() == [POISON_I32, 5, POISON_I32]

    def test_rows_not_written_keep_their_value_under_audit(self) -> None:
        device = device_with(is_audited=True)
        stream = device.stream("main")
        buffer = device.device_buffer("d", (3,), np.int32, stream=stream)
        launch_fill(device, buffer, 5)

        def first(k: Any, array: np.ndarray) -> None:
            array[0] += 1

        device.launch(stream, first, "first", step=0, uses=(updates(buffer, mask=0b001),))
        seen = device.snapshot(stream, [(buffer, None)]).arrays()[0]
        assert seen.tolist() == [6, 5, 5]

    def test_a_prefix_view_is_all_a_kernel_gets(self) -> None:
        device = device_with()
        stream = device.stream("main")
        buffer = device.device_buffer("d", (4,), np.int32, stream=stream)
        shapes = []

        def look(k: Any, array: np.ndarray) -> None:
            shapes.append(array.shape)

        device.launch(stream, look, "look", step=0, uses=(reads(buffer, 3),))
        assert shapes == [(3,)]


class TestHolds:
    def test_an_op_is_held_until_a_host_action_ends(self) -> None:
        device = device_with("kernel:fill@0 until host:look@1")
        buffer = device.device_buffer("d", (2,), np.int32, stream=device.stream("main"))
        launch_fill(device, buffer, 1)
        launch_fill(device, buffer, 2, step=1)
        with device.action("look", step=1):
            assert device.pending() == ("kernel:fill@0", "kernel:fill@1")
        assert device.pending() == ()
        (outcome,) = device.finish().holds
        assert (outcome.matched, outcome.realised) == (1, 1)

    def test_an_op_is_held_until_another_op_completes(self) -> None:
        device = device_with("main/kernel:fill@0 until kernel:fill@7")
        main, copy = device.stream("main"), device.stream("copy")
        buffer = device.device_buffer("d", (2,), np.int32, stream=main)
        other = device.device_buffer("e", (2,), np.int32, stream=copy)
        launch_fill(device, buffer, 1)
        assert device.pending() == ("kernel:fill@0",)
        device.launch(copy, fill, "fill", step=7, uses=(writes(other),), value=2)
        assert device.pending() == ()

    def test_a_wait_forces_the_cone_and_the_hold_is_not_realised(self) -> None:
        device = device_with("kernel:fill@0 until host:never@9")
        main, copy = device.stream("main"), device.stream("copy")
        buffer = device.device_buffer("d", (2,), np.int32, stream=main)
        other = device.device_buffer("e", (2,), np.int32, stream=copy)
        event = device.event("done")
        launch_fill(device, buffer, 1)
        device.record(main, event)
        device.wait_stream(copy, event, EDGE, step=0)
        device.launch(copy, fill, "late", step=0, uses=(writes(other),), value=2)
        device.record(copy, event)
        device.wait_host(event, EDGE, step=0)
        assert device.pending() == ()
        (outcome,) = device.finish().holds
        assert (outcome.matched, outcome.realised) == (1, 0)

    def test_a_wait_forces_no_more_than_its_cone(self) -> None:
        device = VirtualDevice(LANES, chooser=HoldChooser(LATE))
        main, copy = device.stream("main"), device.stream("copy")
        buffer = device.device_buffer("d", (2,), np.int32, stream=main)
        other = device.device_buffer("e", (2,), np.int32, stream=copy)
        event = device.event("done")
        launch_fill(device, buffer, 1)
        device.record(main, event)
        launch_fill(device, buffer, 2, step=1)
        device.launch(copy, fill, "other", step=2, uses=(writes(other),), value=3)
        device.wait_host(event, EDGE, step=0)
        assert device.pending() == ("kernel:fill@1", "kernel:other@2")

    def test_a_hold_that_matches_nothing_is_reported(self) -> None:
        device = device_with("d2h:nothing@3 until host:x@4")
        (outcome,) = device.finish().holds
        assert (outcome.matched, outcome.realised) == (0, 0)

    def test_two_holds_on_one_op_both_have_to_end(self) -> None:
        device = device_with("kernel:fill@0 until host:a@0", "kernel:f* until host:b@0")
        buffer = device.device_buffer("d", (2,), np.int32, stream=device.stream("main"))
        launch_fill(device, buffer, 1)
        with device.action("a", step=0):
            pass
        assert device.pending() == ("kernel:fill@0",)
        with device.action("b", step=0):
            pass
        assert device.pending() == ()
        assert [hold.realised for hold in device.finish().holds] == [1, 1]

    def test_a_torn_copy_lands_row_by_row(self) -> None:
        device = device_with("d2h:values@0[1:] until host:look@0")
        main = device.stream("main")
        buffer = device.device_buffer("d", (3,), np.int32, stream=main)
        host = device.host_buffer("h", (3,), np.int32)
        host.write(np.zeros(3, np.int32))
        launch_fill(device, buffer, 5)
        device.download(main, host, buffer, "values", step=0, rows=3)
        with device.action("look", step=0):
            assert host.read().tolist() == [5, 0, 0]
        assert host.read().tolist() == [5, 5, 5]

    def test_a_dropped_edge_waits_for_nothing(self) -> None:
        chooser = HoldChooser(LATE)
        device = VirtualDevice(LANES, chooser=chooser, dropped=frozenset({"landed"}))
        main = device.stream("main")
        buffer = device.device_buffer("d", (2,), np.int32, stream=main)
        event = device.event("done")
        launch_fill(device, buffer, 1)
        device.record(main, event)
        device.wait_host(event, EDGE, step=0)
        assert device.pending() == ("kernel:fill@0",)


class TestOwners:
    def test_a_copy_carries_owners_and_a_row_move_moves_them(self) -> None:
        device = device_with()
        main = device.stream("main")
        buffer = device.device_buffer("d", (2,), np.int32, stream=main)
        host = device.host_buffer("h", (2,), np.int32)
        own = (("A", 3), ("B", 3))
        device.launch(main, fill, "fill", step=3, uses=(writes(buffer, own=own),), value=1)
        device.download(main, host, buffer, "values", step=3, rows=2)
        host.read(2, expect=own)
        host.swap_rows(0, 1)
        host.read_row(0, expect=("B", 3))
        host.move_row(0, 1)
        host.read_row(1, expect=("B", 3))
        assert not [event for event in device.finish().events if type(event).__name__ == "Misowned"]

    def test_reading_anothers_cell_is_noted(self) -> None:
        device = device_with()
        main = device.stream("main")
        buffer = device.device_buffer("d", (2,), np.int32, stream=main)
        own = (("A", 3), ("B", 3))
        device.launch(main, fill, "fill", step=3, uses=(writes(buffer, own=own),), value=1)
        uses = (reads(buffer, expect=((1, ("A", 3)),)),)
        device.launch(main, lambda k, array: None, "look", step=4, uses=uses)
        (noted,) = [e for e in device.finish().events if type(e).__name__ == "Misowned"]
        assert (noted.name, noted.row, noted.expected, noted.actual) == (
            "kernel:look@4",
            1,
            ("A", 3),
            ("B", 3),
        )


def test_a_snapshot_is_taken_in_stream_order_and_is_not_part_of_the_program() -> None:
    device = VirtualDevice(LANES, chooser=HoldChooser(LATE))
    main = device.stream("main")
    buffer = device.device_buffer("d", (2,), np.int32, stream=main)
    launch_fill(device, buffer, 1)
    snapshot = device.snapshot(main, [(buffer, 1), (buffer, np.array([1, 0]))])
    launch_fill(device, buffer, 2, step=1)
    assert not snapshot.is_done
    trace = device.finish()
    assert [array.tolist() for array in snapshot.arrays()] == [[1], [1, 1]]
    assert len(trace.events) == 2


def test_the_trace_does_not_depend_on_the_schedule() -> None:
    def trace_of(schedule: Schedule) -> Any:
        device = VirtualDevice(LANES, chooser=HoldChooser(schedule))
        main, copy = device.stream("main"), device.stream("copy")
        buffer = device.device_buffer("d", (2,), np.int32, stream=main)
        host = device.host_buffer("h", (2,), np.int32)
        event = device.event("done")
        launch_fill(device, buffer, 1)
        device.record(main, event)
        device.wait_stream(copy, event, EDGE, step=0)
        device.download(copy, host, buffer, "values", step=0, rows=2)
        device.record(copy, event)
        device.wait_host(event, EDGE, step=0)
        host.read()
        return device.finish().events

    assert trace_of(Schedule()) == trace_of(LATE)


def test_what_is_used_twice_is_one_access_of_all_its_rows() -> None:
    """Reads and writes of one memory stay apart."""
    device = device_with()
    buffer = device.device_buffer("d", (4,), np.int32, stream=device.stream("main"))
    used = [
        buffer.access(rows, is_write=is_write)
        for rows, is_write in ((0b1, False), (0b100, False), (0b10, True))
    ]
    found = {access.is_write: access.rows for access in union_of(used)}
    assert found == {False: 0b101, True: 0b10}


def test_a_copy_is_of_the_step_in_which_it_is_issued() -> None:
    device = device_with()
    stream = device.stream("copy")
    host = device.host_buffer("h", (2,), np.int32)
    gpu = device.device_buffer("d_gpu", (2,), np.int32, stream=stream)
    device.upload(stream, gpu, host, step=5, rows=2)
    device.download(stream, host, gpu, "d", step=6, rows=2)
    copies = [event for event in device.recorder.events if isinstance(event, OpRecord)]
    assert [(copy.name, copy.step) for copy in copies] == [("h2d:d@5", 5), ("d2h:d@6", 6)]
