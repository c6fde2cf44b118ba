"""Capture and replay: what a graph freezes, what it reads when it runs, what a trace says of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from racegate.check.checkpoint import Checkpoint
from racegate.device.chooser import HoldChooser
from racegate.device.protocol import FootprintError, Use, reads, updates, writes
from racegate.device.stepping import Stepper, Transition
from racegate.device.virtual.device import VirtualDevice
from racegate.device.virtual.memo import OpMemo
from racegate.history.edge import Edge
from racegate.history.schedule import LATE, parse_schedule
from racegate.history.trace import OpRecord
from racegate.oracles.ordering import find_conflicts

LANES = ("main", "copy")
EDGE = Edge(name="uploaded", before="", after="", buffers=(), reason="")
ROWS = 4


def add(k: Any, source: np.ndarray, target: np.ndarray, *, value: int) -> None:
    target[...] = source + value


def add_at(k: Any, index: np.ndarray, pool: np.ndarray, *, value: int) -> None:
    pool[index] += value


class Program:
    """input_gpu -> middle -> pool rows named by input_gpu, captured as one graph."""

    def __init__(self, *holds: str, stepper: Stepper | None = None, **options: Any) -> None:
        chooser = HoldChooser(parse_schedule(holds)) if stepper is None else stepper
        self.device = VirtualDevice(LANES, chooser=chooser, **options)
        self.main, self.copy = self.device.stream("main"), self.device.stream("copy")
        self.input_cpu = self.device.host_buffer("input_cpu", (ROWS,), np.int32)
        self.input, self.middle, self.pool = (
            self.device.device_buffer(name, (ROWS,), np.int32, stream=self.main)
            for name in ("input_gpu", "middle", "pool")
        )
        self.launch(add, "zero", (reads(self.constant(0)), writes(self.pool)), value=0)
        with self.device.capture(self.main, "g") as self.graph:
            self.launch(add, "first", (reads(self.input, 2), writes(self.middle, 2)), value=0)
            self.launch(
                add_at, "second", (reads(self.middle, 2), updates(self.pool, mask="rows")), value=10
            )

    def constant(self, value: int) -> Any:
        return self.device.constant(f"constant {value}", np.full(ROWS, value, np.int32))

    def launch(self, kernel: Any, name: str, uses: tuple[Use, ...], **scalars: Any) -> None:
        self.device.launch(self.main, kernel, name, step=0, uses=uses, **scalars)

    def upload(self, values: list[int], *, step: int, stream: Any = None) -> None:
        self.input_cpu.write(np.array([*values, 0, 0], np.int32))
        stream = self.main if stream is None else stream
        self.device.upload(stream, self.input, self.input_cpu, step=step, rows=2)

    def replay(self, rows: int, *, step: int) -> None:
        self.device.replay(self.main, self.graph, step=step, masks={"rows": rows})

    def pool_at_end(self) -> list[int]:
        snapshot = self.device.snapshot(self.main, [(self.pool, None)])
        self.device.finish()
        values: list[int] = snapshot.arrays()[0].tolist()
        return values


def operations(device: VirtualDevice) -> list[str]:
    return [event.name for event in device.finish().events if isinstance(event, OpRecord)]


def test_a_capture_issues_and_runs_nothing() -> None:
    program = Program()
    assert operations(program.device) == ["kernel:zero@0"]
    assert program.pool_at_end() == [0, 0, 0, 0]


def test_a_replay_is_one_operation_and_reads_the_buffers_as_they_are() -> None:
    program = Program()
    program.upload([1, 2], step=1)
    program.replay(0b0110, step=1)
    program.upload([2, 3], step=2)
    program.replay(0b1100, step=2)
    assert program.pool_at_end() == [0, 10, 20, 10]
    assert operations(program.device)[1:] == [
        "h2d:input@1",
        "graph:g@1",
        "h2d:input@2",
        "graph:g@2",
    ]


def test_a_held_replay_is_late_and_reads_what_is_there_then() -> None:
    program = Program("graph:g@1 until h2d:input@2")
    program.upload([0, 1], step=1)
    program.replay(0b1111, step=1)
    assert program.device.pending() == ("graph:g@1",)
    program.upload([2, 3], step=2, stream=program.copy)
    assert program.device.pending() == ()
    assert program.pool_at_end() == [0, 0, 10, 10]


def test_the_footprint_is_the_union_with_the_rows_of_the_replay() -> None:
    program = Program()
    program.upload([1, 2], step=1)
    program.replay(0b0110, step=1)
    op = program.device.finish().events[-1]
    assert isinstance(op, OpRecord)
    found = {(access.buffer, access.is_write): access.rows for access in op.accesses}
    assert found == {
        ("input_gpu", False): 0b11,
        ("middle", True): 0b11,
        ("middle", False): 0b11,
        ("pool", False): 0b0110,
        ("pool", True): 0b0110,
    }


def unordered(*, has_edge: bool) -> list[tuple[str, str, str]]:
    program = Program()
    program.upload([1, 2], step=1, stream=program.copy)
    if has_edge:
        event = program.device.event("uploaded")
        program.device.record(program.copy, event)
        program.device.wait_stream(program.main, event, EDGE, step=1)
    program.replay(0b0110, step=1)
    conflicts = find_conflicts(program.device.finish())
    return [(found.buffer, found.first.name, found.second.name) for found in conflicts]


def test_an_upload_that_is_not_ordered_with_the_replay_is_a_conflict() -> None:
    assert unordered(has_edge=True) == []
    assert unordered(has_edge=False) == [("input_gpu", "h2d:input@1", "graph:g@1")]


def test_every_captured_launch_is_audited() -> None:
    program = Program(is_audited=True)
    program.upload([1, 2], step=1)
    program.replay(0b0110, step=1)
    program.upload([1, 3], step=2)
    with pytest.raises(FootprintError, match="graph:g@2 wrote undeclared rows of pool"):
        program.replay(0b0110, step=2)


def test_a_memo_changes_nothing() -> None:
    memo = OpMemo()
    results = []
    for options in ({}, {"memo": memo}, {"memo": memo}):
        program = Program(**options)
        for step in range(1, 4):
            program.upload([step % 2, 2], step=step)
            program.replay(0b0111, step=step)
        results.append(program.pool_at_end())
    assert results[0] == results[1] == results[2] == [10, 20, 30, 0]


def test_a_checkpoint_goes_back_to_before_a_replay() -> None:
    program = Program(memo=OpMemo())
    program.upload([1, 2], step=1)
    checkpoint = Checkpoint([program])
    program.replay(0b0110, step=1)
    before = program.device.snapshot(program.main, [(program.pool, None)]).arrays()[0].tolist()
    checkpoint.restore()
    program.replay(0b0110, step=1)
    assert program.pool_at_end() == before == [0, 10, 10, 0]


class CopyFirst:
    """Steps the copy stream whenever it can."""

    def choose(self, enabled: Sequence[Transition]) -> int:
        lanes = [step.process for step in enabled]
        return lanes.index(2) if 2 in lanes else 0


def test_a_stepper_sees_a_replay_as_one_step() -> None:
    program = Program(stepper=CopyFirst())
    program.upload([0, 1], step=1)
    program.replay(0b1111, step=1)
    program.upload([2, 3], step=2, stream=program.copy)
    assert program.pool_at_end() == [0, 0, 10, 10]


def test_everything_late_is_the_same_where_the_edges_are_kept() -> None:
    program = Program()
    late = Program()
    late.device.use_chooser(HoldChooser(LATE))
    for one in (program, late):
        one.upload([1, 2], step=1)
        one.replay(0b0110, step=1)
    assert late.device.pending() == ("h2d:input@1", "graph:g@1")
    assert late.pool_at_end() == program.pool_at_end()


class TestWhatCannotBeCaptured:
    def test_other_work_than_launches(self) -> None:
        program = Program()
        with (
            pytest.raises(AssertionError, match="h2d:input@0 cannot be captured"),
            program.device.capture(program.main, "h"),
        ):
            program.upload([1, 2], step=0)

    def test_launches_to_another_stream(self) -> None:
        program = Program()
        with (
            pytest.raises(AssertionError, match="on main while copy is captured"),
            program.device.capture(program.copy, "h"),
        ):
            program.launch(add, "a", (reads(program.input), writes(program.middle)), value=0)

    def test_owners_which_belong_to_a_step(self) -> None:
        program = Program()
        with (
            pytest.raises(AssertionError, match="owners"),
            program.device.capture(program.main, "h"),
        ):
            own = (("A", 0),)
            uses = (reads(program.input), writes(program.middle, own=own))
            program.launch(add, "a", uses, value=0)

    def test_captures_do_not_nest_and_end_when_they_fail(self) -> None:
        program = Program()
        with (
            pytest.raises(AssertionError, match="nest"),
            program.device.capture(program.main, "h"),
            program.device.capture(program.main, "i"),
        ):
            pass
        program.upload([1, 2], step=1)

    def test_rows_must_be_given_for_every_name(self) -> None:
        program = Program()
        with pytest.raises(KeyError, match="rows"):
            program.device.replay(program.main, program.graph, step=1, masks={})
        with pytest.raises(AssertionError, match="no rows were given for rows of pool"):
            uses = (reads(program.input), writes(program.pool, mask="rows"))
            program.launch(add, "a", uses, value=0)

    def test_memory_that_was_freed_since(self) -> None:
        program = Program()
        program.device.free(program.middle, step=0)
        with pytest.raises(AssertionError, match="after it was freed"):
            program.replay(0, step=1)
