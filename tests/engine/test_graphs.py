"""Captured forward passes: what replays, what is padded; nothing observed depends on it."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from racegate.check.checker import Checker
from racegate.device.protocol import writes
from racegate.engine.model.graphs import captured_sizes
from racegate.engine.model.padding import MixedPadding, Padding, fits, is_uniform_decode
from racegate.engine.model.parts import ModelParts
from racegate.engine.model.stretches import EMBEDDING, pieces_of
from racegate.engine.state.view import BatchShape, StepView
from racegate.faults.fault import Fault, FaultKind, the_parts
from racegate.history.finding import Verdict
from racegate.history.observe import Observation
from racegate.history.schedule import LATE, Schedule, parse_schedule
from racegate.history.trace import OpRecord, Trace, rows_of
from racegate.oracles.stepwise import find_divergence
from racegate.scenario.expect import Expect
from racegate.scenario.settings import DrafterKind, EngineSpec, GraphMode, LayerKind, Numerics
from racegate.scenario.spec import OwnScenario
from support import IS_NIGHTLY, NAMES, checker, of_one_rank, scenario

GRAPHS = [name for name in NAMES if name.startswith("graph-")]
OTHERS = [name for name in of_one_rank() if not name.startswith("graph-")]
EXACT = [name for name in OTHERS if scenario(name).model.numerics is Numerics.EXACT]
SIZES = ((1, 2, 4, 8), (4,))
ON = tuple(product((GraphMode.FULL_DECODE, GraphMode.PIECEWISE), SIZES))
# Scripts without graphs with those of one kind or another, in turn; nightly with all.
WITHOUT = [
    (name, mode, sizes)
    for place, name in enumerate(EXACT)
    for mode, sizes in (ON if IS_NIGHTLY else (ON[place % len(ON)],))
]


def with_graphs(base: OwnScenario, mode: GraphMode, *sizes: int) -> OwnScenario:
    """The scenario with or without graphs, and without a promise of what it exercises."""
    sizes = sizes or base.engine.capture_rows
    engine = msgspec.structs.replace(base.engine, graph_mode=mode, capture_rows=sizes)
    return msgspec.structs.replace(base, engine=engine, expect=Expect())


def ops(trace: Trace, step: int) -> list[str]:
    return [e.name for e in trace.events if isinstance(e, OpRecord) and e.step == step]


def assert_same(some: tuple[Observation, ...], others: tuple[Observation, ...]) -> None:
    assert len(some) == len(others)
    for one, other in zip(some, others, strict=True):
        assert (one.step, one.boundary, set(one.values)) == (
            other.step,
            other.boundary,
            set(other.values),
        )
        for field, value in one.values.items():
            np.testing.assert_array_equal(value, other.values[field])


class TestNothingObservedDependsOnGraphs:
    @pytest.mark.parametrize(("name", "mode", "sizes"), WITHOUT)
    def test_scripts_that_were_written_without_them(
        self, name: str, mode: GraphMode, sizes: tuple[int, ...]
    ) -> None:
        on = Checker(with_graphs(scenario(name), mode, *sizes))
        run = on.execute(is_audited=True)
        assert_same(run.observations, checker(name).execute().observations)
        result = on.judge(run)
        assert result.verdict is Verdict.PROVED
        # A script of a single decoding request is not a batch of four rows.
        assert result.stats.exercised["graph_replays"] > 0 or sizes == (4,)

    @pytest.mark.parametrize("name", GRAPHS)
    def test_scripts_that_were_written_for_them(self, name: str) -> None:
        without = Checker(with_graphs(scenario(name), GraphMode.EAGER)).execute()
        assert_same(without.observations, checker(name).execute().observations)
        assert without.result is not None
        assert without.result.counters["graph_replays"] == 0

    @pytest.mark.parametrize("mode", [GraphMode.FULL_DECODE, GraphMode.PIECEWISE])
    def test_floats_agree_within_the_tolerance(self, mode: GraphMode) -> None:
        on = Checker(with_graphs(scenario("float32-hybrid"), mode, 4))
        run = on.execute()
        assert find_divergence(run.observations, on.reference.observations) is None
        assert run.result is not None
        assert run.result.counters["padded_rows"] > 0

    def test_without_drafts_every_decode_step_is_uniform(self) -> None:
        base = scenario("steady-mixed-accepts")
        engine = msgspec.structs.replace(base.engine, drafter=DrafterKind.NONE, draft_len_max=0)
        plain = msgspec.structs.replace(base, engine=engine)
        on = Checker(with_graphs(plain, GraphMode.FULL_DECODE))
        run = on.execute(is_audited=True)
        assert on.judge(run).verdict is Verdict.PROVED
        plans = sum(o.boundary == "scheduled" for o in run.observations)
        assert run.result is not None
        assert run.result.counters["graph_replays"] == plans - 1  # all but the prompts' step


class TestDispatch:
    def test_a_replay_stands_for_the_whole_forward_pass(self) -> None:
        trace = checker("graph-uniform-decode").execute().trace
        eager, replayed = ops(trace, 0), ops(trace, 1)
        assert [name for name in eager if "layer" in name or "embed" in name] == [
            "kernel:embed@0",
            "kernel:layer.0@0",
            "kernel:layer.1@0",
            "kernel:layer.2@0",
        ]
        assert not [name for name in replayed if "layer" in name or "embed" in name]
        place = replayed.index("graph:decode.4@1")
        assert replayed[place - 2 : place] == ["kernel:pad_tokens@1", "kernel:pad_rows@1"]
        assert replayed[place + 1] == "kernel:sample@1"

    def test_the_smallest_graph_that_holds_the_batch_is_taken(self) -> None:
        run = checker("graph-uniform-decode").execute()
        graphs = [e.name for e in run.trace.events if getattr(e, "name", "").startswith("graph:")]
        assert graphs == [f"graph:decode.{4 if step < 6 else 2}@{step}" for step in range(1, 9)]
        assert run.result is not None
        assert run.result.counters["graph_replays"] == 8
        assert run.result.counters["padded_rows"] == 5 * 1 + 2 * 1

    def test_a_full_batch_is_not_padded(self) -> None:
        trace = checker("graph-parked-request").execute().trace
        assert "graph:decode.4@2" in ops(trace, 2)
        assert "kernel:pad_rows@2" not in ops(trace, 2)

    def test_uniform_is_a_matter_of_phase_and_shape(self) -> None:
        def is_uniform(tokens: list[int], is_decode: list[int]) -> bool:
            view: Any = SimpleNamespace(tokens=np.array(tokens), is_decode=np.array(is_decode))
            return is_uniform_decode(view, width=4)

        assert is_uniform([4, 4], [1, 1])
        assert not is_uniform([4, 4], [1, 0])  # a prompt chunk of 1 + k tokens
        assert not is_uniform([4, 1], [1, 1])
        assert not is_uniform([4, 3], [1, 1])
        assert not is_uniform([1], [1])

    def test_pieces_lie_between_attention_layers(self) -> None:
        mamba, delta, attends = LayerKind.MAMBA2, LayerKind.GATED_DELTA, LayerKind.ATTENTION
        pieces = pieces_of((mamba, attends, attends, delta, mamba), GraphMode.PIECEWISE)
        assert pieces == (
            ((EMBEDDING, 0), "piece.0"),
            ((1, 2), None),
            ((3, 4), "piece.4"),
        )
        assert pieces_of((attends,), GraphMode.PIECEWISE) == (
            ((EMBEDDING,), "piece.0"),
            ((0,), None),
        )
        assert pieces_of((mamba, attends), GraphMode.FULL_DECODE) == (
            ((EMBEDDING, 0, 1), "decode"),
        )

    def test_a_mixed_batch_replays_pieces_and_launches_attention(self) -> None:
        trace = checker("graph-piecewise-mixed").execute().trace
        place = ops(trace, 2).index("graph:piece.0.4@2")  # a chunk of 5 tokens beside a decode row
        assert ops(trace, 2)[place : place + 5] == [
            "graph:piece.0.4@2",
            "kernel:layer.1@2",
            "graph:piece.3.4@2",
            "kernel:layer.4@2",
            "kernel:sample@2",
        ]

    def test_rows_and_tokens_must_fit(self) -> None:
        def takes(rows: int, tokens: int) -> bool:
            shape = BatchShape(
                step=0,
                rows=rows,
                tokens=tokens,
                blocks=0,
                state_blocks=0,
                written=0,
                state_written=0,
            )
            return fits(shape, 2, width=4)

        assert takes(2, 8)
        assert takes(1, 8)
        assert not takes(1, 9)
        assert not takes(3, 3)

    def test_only_what_the_buffers_hold_is_captured(self) -> None:
        def sizes(**values: Any) -> tuple[int, ...]:
            return captured_sizes(EngineSpec(capture_rows=(1, 2, 4, 8), **values))

        on = GraphMode.FULL_DECODE
        assert sizes() == ()
        assert sizes(graph_mode=on) == (1, 2, 4, 8)
        assert sizes(graph_mode=on, rows_max=4) == (1, 2, 4)
        assert sizes(graph_mode=on, tokens_per_step_max=8) == (1, 2)
        assert sizes(graph_mode=on, tokens_per_step_max=8, draft_len_max=1) == (1, 2, 4)
        assert sizes(graph_mode=on, tokens_per_step_max=3) == ()


class TestReplaysInSchedules:
    def test_a_held_replay_is_late_and_changes_nothing(self) -> None:
        holds = ["graph:decode.4@2 until host:prepare_inputs@3", "graph:decode.2@6 until forced"]
        result = checker("graph-uniform-decode").run(schedule=parse_schedule(holds))
        assert result.findings == ()
        assert all(hold.realised for hold in result.holds)

    def test_a_replay_touches_the_blocks_of_its_batch_only(self) -> None:
        run = checker("graph-parked-request").execute()
        tables = {
            o.step: o.values["state_table"] for o in run.observations if o.boundary == "scheduled"
        }
        for event in run.trace.events:
            if isinstance(event, OpRecord) and event.name.startswith("graph:"):
                (written,) = [a for a in event.accesses if a.is_write and a.buffer == "state.0"]
                batch = {block for row in tables[event.step].values() for block in row}
                assert set(rows_of(written.rows)) == batch

    def test_the_flags_of_the_batch_are_not_read(self) -> None:
        run = checker("graph-uniform-decode").execute()
        for event in run.trace.events:
            if isinstance(event, OpRecord) and event.name.startswith("graph:"):
                assert "is_decode_gpu" not in {access.buffer for access in event.accesses}


def _spoil(k: Any, *buffers: np.ndarray, first: int) -> None:
    """What a tail might hold at worst: long rows, others' blocks, counts of other rows."""
    query_start, *others = buffers
    query_start[first + 1 :] = 7
    for buffer in others:
        buffer[first:] = 3


class Spoiled(Padding):
    """Everything behind the batch is wrong before it is padded."""

    def refresh(self, view: StepView, size: int) -> None:
        inputs, work = self.live.inputs, self.live.work
        buffers = (
            inputs.query_start.gpu,
            inputs.block_table.gpu,
            self.live.window_table,
            work.accepted,
            work.computed,
        )
        rows = view.shape.rows
        uses = [
            writes(buffer, mask=(1 << buffer.shape[0]) - (1 << rows + (index == 0)))
            for index, buffer in enumerate(buffers)
        ]
        self.setup.device.launch(
            self.setup.compute, _spoil, "spoil", step=view.shape.step, uses=uses, first=rows
        )
        super().refresh(view, size)


class SpoiledMixed(Spoiled, MixedPadding):
    """The same of batches that replay pieces."""


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("schedule", [Schedule(), LATE], ids=["eager", "late"])
def test_what_stood_behind_the_batch_does_not_matter(name: str, schedule: Schedule) -> None:
    spoiled = Fault(
        name="spoiled",
        number=0,
        kind=FaultKind.CONTROL,
        origin="",
        summary="",
        expect="",
        scenarios=(),
        parts=the_parts(model=ModelParts(padding=Spoiled, mixed_padding=SpoiledMixed)),
    )
    run = checker(name).execute(fault=spoiled, is_audited=True, schedule=schedule)
    assert checker(name).judge(run, fault=spoiled).findings == ()
    assert any(
        name.startswith("kernel:spoil") for step in range(9) for name in ops(run.trace, step)
    )
