"""Saved prefixes as laws: over any scenario, run with offload."""

from __future__ import annotations

from random import Random

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from racegate.scenario.settings import CacheMode
from racegate.scenario.spec import Abort, Dummy, Gap, OwnScenario
from racegate_reference.blocks import NULL_BLOCK
from racegate_reference.engine import Engine, run_reference
from racegate_reference.frames import Frame
from racegate_reference.scheduler import Plan, Scheduler
from reference_runs import assert_same, iterations
from reference_scenarios import random_scenario, scenarios


class Watched(Scheduler):
    """Compares every admission with a store of its own, which it searches by brute force."""

    def __init__(self, of: OwnScenario, engine: Engine) -> None:
        super().__init__(of, engine.events)
        self.interval = of.engine.state_interval
        self.saved: list[tuple[int, ...]] = []
        self.most = of.engine.prefixes_max or len(of.requests) * of.engine.model_len_max
        self.admitted: set[tuple[str, int]] = set()
        self.hits = 0

    def plan(self, step: int) -> Plan:
        plan = super().plan(step)
        for entry in plan.entries:
            incarnation = (entry.request, entry.incarnation)
            expected = 0
            if incarnation not in self.admitted:
                self.admitted.add(incarnation)
                expected = self.longest(self.requests[entry.request].tokens)
                assert entry.computed == expected
                self.hits += expected > 0
            assert entry.loaded == expected
        return plan

    def longest(self, tokens: tuple[int, ...]) -> int:
        lengths = [len(key) - 1 for key in self.saved if key == tokens[: len(key)]]
        return max(lengths, default=0)

    def process(self, frame: Frame) -> None:
        for result in frame.results:
            tracked = self.requests[result.entry.request]
            current = result.entry.incarnation == tracked.incarnation
            if tracked.outcome is None and current and result.entry.chunk:
                assert result.end == result.start + result.entry.tokens
                if result.end % self.interval == 0:
                    self.save(tracked.tokens[: result.end + 1])
        super().process(frame)
        assert list(self.store.keys) == self.saved

    def save(self, key: tuple[int, ...]) -> None:
        if key not in self.saved:
            self.saved = [*self.saved, key][-self.most :]


def with_offload(of: OwnScenario, most: int | None = None) -> OwnScenario:
    engine = msgspec.structs.replace(of.engine, cache_mode=CacheMode.OFFLOAD, prefixes_max=most)
    return msgspec.structs.replace(of, engine=engine)


def watch(of: OwnScenario, most: int | None = None) -> Watched:
    """The scheduler of a whole run with offload. most: prefixes that are held"""
    of = with_offload(of, most)
    engine = Engine(of)
    watched = engine.scheduler = Watched(of, engine)
    while not engine.done:
        engine.iterate()
    return watched


@given(scenarios(), st.sampled_from((None, None, 1, 2)))
@settings(max_examples=80)
def test_hits_are_the_longest_saved_prefixes(of: OwnScenario, most: int | None) -> None:
    watched = watch(of, most)
    # A key is a prefix of a whole number of intervals, and the token behind it.
    assert {len(key) % watched.interval for key in watched.saved} <= {1}


def test_random_scenarios_do_hit() -> None:
    hits = [watch(random_scenario(Random(seed))).hits for seed in range(60)]
    assert sum(hit > 0 for hit in hits) >= 20


@given(scenarios())
@settings(max_examples=40)
def test_no_block_is_shared(of: OwnScenario) -> None:
    for engine in iterations(with_offload(of)):
        requests = engine.scheduler.requests.values()
        for tables in (
            [t.tables.attention for t in requests],
            [t.tables.state for t in requests],
        ):
            held = [block for table in tables for block in table if block != NULL_BLOCK]
            assert len(held) == len(set(held))


@given(scenarios())
@settings(max_examples=40)
def test_without_hits_it_is_align(of: OwnScenario) -> None:
    """One request that never comes back computes in the same steps, columns and blocks."""
    kept = (Gap, Abort, Dummy)
    events = tuple(
        e for e in of.events if isinstance(e, kept) and getattr(e, "request", "A") == "A"
    )
    # Blocks enough that it never preempts itself.
    ample = {"blocks": 80, "state_blocks": 40}
    one, other = (
        run_reference(
            msgspec.structs.replace(
                of,
                requests=of.requests[:1],
                events=events,
                engine=msgspec.structs.replace(of.engine, cache_mode=mode, **ample),
            )
        )
        for mode in (CacheMode.ALIGN, CacheMode.OFFLOAD)
    )
    layers = range(len(of.model.layers))
    loaded = {"loaded_draft_kv", *(f"loaded_kv.{layer}" for layer in layers)}
    assert_same(one, other, besides=loaded)
    assert one.delivered == other.delivered
