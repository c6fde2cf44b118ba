"""Zeroing of fresh blocks, the store of saved prefixes, and idle steps."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from racegate.check.checker import Checker
from racegate.engine.state import edges
from racegate.faults.fault import Fault, FaultKind
from racegate.history.finding import FindingKind, Verdict
from racegate.history.observe import Boundary
from racegate.history.schedule import LATE, parse_schedule
from racegate.history.trace import OpRecord, Waited
from racegate.scenario.expect import Expect
from racegate.scenario.settings import CacheMode, Planning, TransferMode, Zeroing
from racegate.scenario.spec import Budget, Dummy, OwnScenario
from support import NAMES, checker, scenario

OFFLOADED = ("offload-save-and-load", "offload-recycled-blocks", "offload-preempted-save")
BY_THREAD = ("offload-thread-preempted", "offload-thread-aborted", "offload-thread-states")
BY_NIC = ("offload-nic-recycled", "offload-nic-zeroed", "offload-nic-next-step")


def without(edge: str) -> Fault:
    return Fault(
        name=f"without/{edge}",
        number=0,
        kind=FaultKind.ORDERING,
        origin="test",
        summary="",
        expect="",
        scenarios=(),
        drops=frozenset({edge}),
    )


def with_kernel(name: str, kernel: Any) -> Fault:
    base = without("none")
    return msgspec.structs.replace(base, drops=frozenset(), kernels={name: lambda k: kernel})


def with_engine(of: OwnScenario, **changes: Any) -> OwnScenario:
    engine = msgspec.structs.replace(of.engine, **changes)
    return msgspec.structs.replace(of, engine=engine, expect=Expect())


def boundaries(of: OwnScenario, *, fields: frozenset[str] = frozenset()) -> list[Any]:
    """Everything observed, without some fields, in a form that compares."""
    run = Checker(of).execute()
    return [
        (
            o.step,
            o.boundary,
            {
                k: np.asarray(v).tolist() if hasattr(v, "tolist") else v
                for k, v in o.values.items()
                if k.partition(".")[0] not in fields
            },
        )
        for o in run.observations
    ]


class TestZeroing:
    def test_new_blocks_had_an_owner_and_are_zero(self) -> None:
        """Without the kernel the same check finds what the last owner left."""
        idle = with_kernel("zero_blocks", lambda pool, blocks: None)
        result = checker("fresh-blocks-zeroed").run(fault=idle)
        first = next(f for f in result.findings if f.kind is FindingKind.DIVERGENCE)
        assert first.field == "inputs.fresh_dirty"

    def test_every_new_block_is_listed_once(self) -> None:
        run = checker("fresh-blocks-zeroed").execute()
        assert run.result is not None
        tables = [o.values for o in run.observations if o.boundary is Boundary.SCHEDULED]
        seen: dict[str, int] = {}
        taken = 0
        for values in tables:
            for table in ("block_table", "state_table"):
                for name, blocks in values[table].items():
                    taken += len(blocks) - seen.get(f"{table}/{name}", 0)
                    seen[f"{table}/{name}"] = len(blocks)
        assert run.result.counters["zeroed_blocks"] == taken

    def test_it_changes_nothing_else(self) -> None:
        of = scenario("fresh-blocks-zeroed")
        plain = boundaries(with_engine(of, zeroing=Zeroing.NONE))
        assert boundaries(of, fields=frozenset({"fresh_dirty"})) == plain


class TestStore:
    @pytest.mark.parametrize("name", OFFLOADED)
    def test_what_is_delivered_does_not_depend_on_it(self, name: str) -> None:
        of = scenario(name)
        roomy = {"blocks": 96, "state_blocks": 96}
        stored = Checker(with_engine(of, **roomy)).execute().result
        plain = Checker(with_engine(of, cache_mode=CacheMode.NONE, **roomy)).execute().result
        assert stored is not None and plain is not None
        assert stored.delivered == plain.delivered
        assert stored.counters["loads"] > 0 == plain.counters["loads"]

    @pytest.mark.parametrize(
        ("edge", "names"),
        [
            (edges.SAVE_AFTER_FORWARD, OFFLOADED),
            (edges.REUSE_AFTER_SAVE, OFFLOADED),
            (edges.LOAD_AFTER_RELEASE, OFFLOADED),
            (edges.FORWARD_AFTER_LOAD, OFFLOADED),
            (edges.SAVE_AFTER_FORWARD, BY_THREAD),
            (edges.LOAD_AFTER_RELEASE, BY_THREAD),
            (edges.SAVE_CONFIRMED, BY_THREAD),
            (edges.LOAD_CONFIRMED, BY_THREAD),
            (edges.SAVE_POSTED, BY_NIC),
            (edges.SAVE_CONFIRMED, BY_NIC),
            (edges.LOAD_POSTED, BY_NIC),
            (edges.LOAD_CONFIRMED, BY_NIC),
        ],
    )
    def test_each_of_its_edges_is_needed_and_named(
        self, edge: edges.Edge, names: tuple[str, ...]
    ) -> None:
        found = set()
        for name in names:
            result = checker(name).run(fault=without(edge.name))
            found |= {f.edge for f in result.findings if f.kind is FindingKind.CONFLICT}
        assert edge.name in found

    @pytest.mark.parametrize(
        ("name", "saving", "loading"),
        [
            ("offload-save-and-load", "save", "load"),
            ("offload-thread-preempted", "copier", "copier"),
            ("offload-nic-zeroed", "save", "load"),
        ],
    )
    def test_saves_and_loads_run_on_lanes_of_their_own(
        self, name: str, saving: str, loading: str
    ) -> None:
        trace = checker(name).execute().trace
        lanes = {
            event.name.partition(".")[0]: trace.lanes[event.lane]
            for event in trace.events
            if isinstance(event, OpRecord) and event.name.startswith(("d2h:save", "h2d:load"))
        }
        assert lanes == {"d2h:save": saving, "h2d:load": loading}

    @pytest.mark.parametrize("transfers", [TransferMode.THREAD, TransferMode.NIC])
    @pytest.mark.parametrize("name", OFFLOADED)
    def test_what_is_observed_does_not_depend_on_what_carries_it(
        self, name: str, transfers: TransferMode
    ) -> None:
        of = scenario(name)
        carried = with_engine(of, transfers=transfers)
        assert Checker(carried).run(schedule=LATE, is_audited=True).verdict is Verdict.PROVED
        assert boundaries(carried) == boundaries(of)

    def test_the_host_asks_for_completions_only_where_they_are_needed(self) -> None:
        """D's two chunks are stored; its first blocks are never given away while it is read."""
        trace = checker("offload-thread-preempted").execute().trace
        asked = [
            event
            for event in trace.events
            if isinstance(event, Waited) and event.edge == edges.SAVE_CONFIRMED.name
        ]
        saves = checker("offload-thread-preempted").execute().result
        assert saves is not None
        assert 0 < len(asked) <= saves.counters["saves"]

    @pytest.mark.parametrize("name", ["offload-evicted-load", "offload-nic-evicted"])
    def test_host_memory_holds_no_more_than_it_may(self, name: str) -> None:
        ended = checker(name).execute().result
        assert ended is not None
        assert ended.counters["saves"] - ended.counters["evictions"] == 1
        assert scenario(name).engine.prefixes_max == 1

    def test_a_load_can_be_late_without_harm(self) -> None:
        late = parse_schedule(["load/* until forced", "save/* until forced"])
        for name in OFFLOADED:
            assert checker(name).run(schedule=late).findings == ()


class TestIdleSteps:
    def test_padding_rows_change_nothing(self) -> None:
        of = scenario("idle-rank-dummy-steps")
        empty = tuple(
            Budget(step=event.step, tokens=0) for event in of.events if isinstance(event, Dummy)
        )
        assert len(empty) == 2
        idle = msgspec.structs.replace(of, events=empty, expect=Expect())
        assert boundaries(of) == boundaries(idle)

    @pytest.mark.parametrize("name", ["idle-rank-dummy-steps", *OFFLOADED])
    def test_footprints_are_declared(self, name: str) -> None:
        for schedule in (parse_schedule([]), LATE):
            result = checker(name).run(schedule=schedule, is_audited=True)
            assert result.verdict is Verdict.PROVED

    @pytest.mark.parametrize("cache_mode", CacheMode)
    def test_in_every_cache_mode(self, cache_mode: CacheMode) -> None:
        of = with_engine(scenario("idle-rank-dummy-steps"), cache_mode=cache_mode)
        assert Checker(of).run(schedule=LATE).verdict is Verdict.PROVED


@pytest.mark.parametrize("name", NAMES)
def test_a_plan_on_a_side_stream_is_the_same_plan(name: str) -> None:
    of = scenario(name)
    other = {Planning.INLINE: Planning.SIDE_STREAM, Planning.SIDE_STREAM: Planning.INLINE}
    turned = with_engine(of, planning=other[of.engine.planning])
    assert Checker(turned).run(schedule=LATE).findings == ()


def test_a_prefix_with_another_token_behind_it_is_not_loaded() -> None:
    """The drafter's last entry depends on that token, so it is part of the key."""
    of = scenario("offload-save-and-load")
    a, b, *rest = of.requests
    behind = (b.prompt[16] + 1) % of.model.vocab_size
    turned = msgspec.structs.replace(b, prompt=(*b.prompt[:16], behind, *b.prompt[17:]))
    changed = msgspec.structs.replace(of, requests=(a, turned, *rest), expect=Expect())
    run = Checker(changed).execute()
    admitted = [
        entry
        for o in run.observations
        if o.boundary is Boundary.SCHEDULED and o.step == b.arrive
        for entry in o.values["plan"]
        if entry[0] == b.name
    ]
    assert admitted == [(b.name, 8, 0)], "a hit of 16 tokens would leave fewer to compute"
    assert Checker(changed).run().verdict is Verdict.PROVED
