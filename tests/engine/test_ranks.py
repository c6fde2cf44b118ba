"""The engine on several ranks: what each has, how they meet, and what they have to agree on."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from racegate.check.checker import Checker
from racegate.check.expected import CheckError
from racegate.check.subject import LaunchMode
from racegate.device.chooser import HoldChooser
from racegate.device.cuda.site import CudaSite
from racegate.device.protocol import DeadlockError, writes
from racegate.device.virtual.device import VirtualDevice
from racegate.engine.model.weights import make_weights
from racegate.engine.ranks.meeting import Collective, Communicator, MismatchError
from racegate.engine.ranks.shards import places, shard_of, shard_weights
from racegate.engine.state.edges import PARTS_SENT
from racegate.faults.catalogue import find_fault
from racegate.history.finding import FindingKind, Verdict
from racegate.history.schedule import LATE, lane_late, parse_schedule
from racegate.oracles.ordering import find_conflicts
from racegate.scenario.expect import Expect
from racegate.scenario.settings import (
    CacheMode,
    DrafterKind,
    DraftSampling,
    GraphMode,
    Layout,
    ModelPart,
    ModelSpec,
    Numerics,
)
from racegate.scenario.spec import OwnScenario, ScenarioError
from racegate.scenario.validation import validate
from racegate_reference.ranks import by_rank
from support import checker, scenario

SPREAD = "ranks-spread-heads"
LANES = ("compute.rank0", "compute.rank1")
WIDE: dict[str, Any] = {"heads": 4, "kv_heads": 2, "key_heads": 2, "groups": 2, "mlp_size": 6}


def changed(
    model: dict[str, Any] | None = None, engine: dict[str, Any] | None = None
) -> OwnScenario:
    script = scenario(SPREAD)
    return validate(
        msgspec.structs.replace(
            script,
            model=msgspec.structs.replace(script.model, **(model or {})),
            engine=msgspec.structs.replace(script.engine, **(engine or {})),
        )
    )


@pytest.mark.parametrize(
    ("model", "engine"),
    [
        ({}, {"depth": 1}),
        ({}, {"layout": Layout.SLOTS, "cache_mode": CacheMode.ALL}),
        ({}, {"cache_mode": CacheMode.ALIGN, "drafter": DrafterKind.NGRAM}),
        ({"groups": 2}, {"cache_mode": CacheMode.OFFLOAD, "depth": 3}),
        ({}, {"drafter": DrafterKind.MTP, "draft_sampling": DraftSampling.RANDOM}),
        ({**WIDE, "parts": tuple(ModelPart)}, {}),
        ({**WIDE, "parts": tuple(ModelPart), "numerics": Numerics.FLOAT32}, {}),
        ({**WIDE, "kv_heads": 4, "key_heads": 1, "groups": 4, "mlp_size": 8}, {"ranks": 4}),
    ],
)
def test_every_rank_does_what_its_part_of_one_would(
    model: dict[str, Any], engine: dict[str, Any]
) -> None:
    script = msgspec.structs.replace(changed(model, engine), expect=Expect())
    result = Checker(script).run(is_audited=True)
    assert result.verdict is Verdict.PROVED, result.findings


def test_a_rank_may_be_late_in_any_lane() -> None:
    judge = checker(SPREAD)
    for schedule in (LATE, *map(lane_late, judge.lanes)):
        result = judge.run(schedule=schedule)
        assert result.findings == ()
        assert all(hold.realised for hold in result.holds)
    assert {"compute.rank0", "counts.rank1"} <= set(judge.lanes)


def test_ranks_deliver_what_one_rank_does() -> None:
    alone = Checker(changed(engine={"ranks": 1})).execute()
    spread = checker(SPREAD).execute()
    assert alone.result is not None and spread.result is not None
    assert spread.result.delivered == alone.result.delivered
    assert {seen.rank for seen in alone.observations} == {None}
    assert [seen.rank for seen in spread.observations[:4]] == [0, 1, 0, 1]
    assert len(spread.observations) == 2 * len(alone.observations)


def test_blocking_ranks_wait_behind_each_step() -> None:
    judge = checker(SPREAD)
    blocking = judge.judge(judge.execute(launches=LaunchMode.BLOCKING))
    assert blocking.findings == ()
    assert blocking.stats.host_waits > judge.run().stats.host_waits
    assert blocking.unmet == ("overlapped_ops: 0, the scenario expects at least 10",)


class TestWhatIsRefused:
    @pytest.mark.parametrize(
        ("model", "engine", "reason"),
        [
            ({}, {"ranks": 9}, r"\$\.engine\.ranks: must be 1\.\.8"),
            ({"heads": 3, "kv_heads": 1, "key_heads": 1}, {}, r"\$\.model\.heads: 3 cannot be"),
            ({"mlp_size": 5}, {}, r"\$\.model\.mlp_size: 5 cannot be spread over 2 ranks"),
            ({"heads": 6, "kv_heads": 3}, {}, r"\$\.model\.kv_heads: 3 cannot be spread"),
            ({"parts": (ModelPart.GATED_NORM,)}, {}, r"\$\.model\.groups: 1 cannot be spread"),
            ({}, {"graph_mode": GraphMode.FULL_DECODE}, r"\$\.engine\.graph_mode: must be eager"),
        ],
    )
    def test_a_model_that_cannot_be_spread(
        self, model: dict[str, Any], engine: dict[str, Any], reason: str
    ) -> None:
        with pytest.raises(ScenarioError, match=reason):
            changed(model, engine)

    def test_a_gpu(self) -> None:
        site = object.__new__(CudaSite)
        with pytest.raises(CheckError, match="2 ranks meet on the virtual device alone"):
            Checker(scenario(SPREAD), cuda=site)


class TestShards:
    SPEC = ModelSpec(**WIDE, parts=tuple(ModelPart))

    def test_ranks_have_everything_once_but_what_there_is_once(self) -> None:
        assert places([(4, 3)], 1, 2).tolist() == [6, 7, 8, 9, 10, 11]
        assert places([(2, 2), (1, 3), (2, 1)], 0, 2).tolist() == [0, 1, 4, 5, 6, 7]
        assert places([(2, 2), (1, 3), (2, 1)], 1, 2).tolist() == [2, 3, 4, 5, 6, 8]

    def test_products_of_shards_add_up_to_the_whole_product(self) -> None:
        weights = make_weights(self.SPEC, has_mtp=False)
        shards = [shard_weights(self.SPEC, weights, rank=rank, ranks=2) for rank in range(2)]
        x = np.arange(self.SPEC.heads * self.SPEC.head_size, dtype=np.uint32)
        name = "layer.0.out_proj"
        parts = [shard[name] @ half for shard, half in zip(shards, np.split(x, 2), strict=True)]
        assert np.array_equal(parts[0] + parts[1], weights[name] @ x)

    def test_what_is_added_to_the_sum_one_rank_has(self) -> None:
        weights = make_weights(self.SPEC, has_mtp=True)
        first, second = (shard_weights(self.SPEC, weights, rank=n, ranks=2) for n in range(2))
        assert "layer.1.out_bias" in first
        assert "layer.1.out_bias" not in second
        for name in ("embed", "lm_head", "draft.qkv_proj", "layer.2.norm"):
            assert first[name] is second[name] is weights[name]

    def test_shapes_are_those_of_a_model_of_that_size(self) -> None:
        weights = make_weights(self.SPEC, has_mtp=False)
        shards = shard_weights(self.SPEC, weights, rank=0, ranks=2)
        halved = msgspec.structs.replace(shard_of(self.SPEC, 2), mlp_size=3)
        small = make_weights(halved, has_mtp=False)
        assert {name: value.shape for name, value in shards.items()} == {
            name: value.shape for name, value in small.items()
        }


class TestMeeting:
    """Two compute streams and nothing else."""

    def device(self, **options: Any) -> tuple[VirtualDevice, Communicator]:
        device = VirtualDevice(LANES, **options)
        return device, Communicator(device, [device.stream(lane) for lane in LANES])

    def send(self, device: VirtualDevice, made: Communicator, rank: int, value: int) -> None:
        place = made.places("sum", (1,), np.int32)[0]
        device.turn(rank)
        number = made.join(rank, Collective("all_reduce", "x", 0, 1))
        device.launch(
            made.streams[rank],
            lambda kernels, places: places.__setitem__(rank, value),
            "send",
            step=0,
            uses=[writes(place, mask=1 << rank)],
        )
        made.arrive(rank, number)
        made.wait(rank, number, step=0)

    def test_a_stream_goes_on_when_all_have_sent(self) -> None:
        device, made = self.device()
        event = device.event("taken")
        self.send(device, made, 0, 7)
        device.record(made.streams[0], event)
        assert not device.query(event, step=0)
        self.send(device, made, 1, 8)
        assert device.query(event, step=0)
        assert made.places("sum", (1,), np.int32)[0].storage.array.tolist() == [[7], [8]]

    def test_a_held_part_holds_the_others_back(self) -> None:
        holds = HoldChooser(parse_schedule(["kernel:send.rank1@0"]))
        device, made = self.device(chooser=holds)
        event = device.event("taken")
        self.send(device, made, 0, 7)
        self.send(device, made, 1, 8)
        device.turn(0)
        device.record(made.streams[0], event)
        assert not device.query(event, step=0)
        device.wait_host(event, PARTS_SENT, step=0)
        assert device.pending() == ()
        assert [hold.realised for hold in device.trace().holds] == [1]

    def test_a_rank_that_is_never_told_its_part_is_a_deadlock(self) -> None:
        device, made = self.device()
        self.send(device, made, 0, 7)
        with pytest.raises(DeadlockError, match=r"collective\.rank1 number 0, which nobody has"):
            device.finish()

    @pytest.mark.parametrize(
        "other", [Collective("all_gather", "y", 3, 1), Collective("all_reduce", "y", 3, 2)]
    )
    def test_another_kind_or_size_is_a_mismatch(self, other: Collective) -> None:
        _, made = self.device()
        made.join(0, Collective("all_reduce", "x", 2, 1))
        with pytest.raises(MismatchError, match=r"collective 0: rank 1 issues .* y in step 3"):
            made.join(1, other)

    def test_what_a_rank_does_in_front_of_a_collective_is_before_what_is_behind_it(self) -> None:
        device, made = self.device()
        shared = device.constant("shared", np.zeros(1, np.int32))
        for rank in (1, 0):  # who is told first does not matter
            if rank == 0:
                self.touch(device, made, rank, shared)
            self.send(device, made, rank, rank)
            if rank == 1:
                self.touch(device, made, rank, shared)
        assert find_conflicts(device.finish()) == []

    def test_nothing_orders_what_ranks_do_on_one_side_of_it(self) -> None:
        device, made = self.device()
        shared = device.constant("shared", np.zeros(1, np.int32))
        for rank in (1, 0):
            self.touch(device, made, rank, shared)
            self.send(device, made, rank, rank)
        (found,) = find_conflicts(device.finish())
        assert {found.first.name, found.second.name} == {
            "kernel:touch.rank0@0",
            "kernel:touch.rank1@0",
        }

    def test_a_dropped_wait_orders_nothing(self) -> None:
        device, made = self.device(dropped=frozenset({PARTS_SENT.name}))
        shared = device.constant("shared", np.zeros(1, np.int32))
        self.touch(device, made, 0, shared)
        self.send(device, made, 0, 0)
        self.send(device, made, 1, 1)
        self.touch(device, made, 1, shared)
        assert len(find_conflicts(device.finish())) == 1

    def touch(self, device: VirtualDevice, made: Communicator, rank: int, buffer: Any) -> None:
        device.turn(rank)
        device.launch(made.streams[rank], nothing, "touch", step=0, uses=[writes(buffer, mask=1)])


def nothing(kernels: object, *arrays: object) -> None:
    """A kernel that leaves everything as it was."""


def test_the_reference_cuts_what_ranks_have() -> None:
    whole = Checker(changed(engine={"ranks": 1})).reference.observations
    spec = scenario(SPREAD).model
    cut = by_rank(whole, spec, ranks=2)
    assert by_rank(whole, spec, ranks=1) == whole
    sampled = next(seen for seen in whole if "kv.2" in seen.values)
    first, second = (seen for seen in cut if seen.step == sampled.step and "kv.2" in seen.values)
    assert (first.rank, second.rank) == (0, 1)
    # One key head, which both have; two heads of states.
    assert np.array_equal(first.values["kv.2"], second.values["kv.2"])
    halves = [first.values["state.0"], second.values["state.0"]]
    assert np.array_equal(np.concatenate(halves, axis=-3), sampled.values["state.0"])


class TestFindings:
    def test_a_wrong_pair_is_told_with_both_places(self) -> None:
        result = checker("ranks-idle-steps").run(fault=find_fault("idle-step-left-out"))
        wrong, stopped = (f for f in result.findings if f.kind is FindingKind.MISMATCH)
        assert wrong.signature == "mismatch/kernel:send.layer.0/kernel:send.layer.0"
        assert wrong.op == "kernel:send.layer.0.rank0@3"
        assert wrong.other == "kernel:send.layer.0.rank1@4"
        assert "rank 1 issues all_gather of 2 rows for logits in step 4" in stopped.message

    def test_a_value_that_one_rank_has_is_told_with_the_rank(self) -> None:
        result = checker(SPREAD).run(fault=find_fault("drafts-of-one-rank"))
        kinds = {finding.kind: finding for finding in result.findings}
        assert kinds[FindingKind.DIVERGENCE].rank == 1
        assert "on rank 1 at [0, 0]" in kinds[FindingKind.DIVERGENCE].message
        assert "drafts of rank 1 is 0, rank 0 has 24" in kinds[FindingKind.INVARIANT].message

    def test_a_hold_of_one_rank_leaves_the_other_as_it_is(self) -> None:
        holds = parse_schedule(["d2h:valid_count.rank1@2 until host:correct.rank1@3"])
        run = checker("ranks-idle-steps").execute(
            schedule=holds, fault=find_fault("idle-step-by-own-count")
        )
        (hold,) = run.trace.holds
        assert (hold.matched, hold.realised) == (1, 1)
