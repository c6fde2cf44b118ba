"""The owners of pages: each mistake on operations made for it, and what only they see in a run."""

from __future__ import annotations

import msgspec
import pytest

from racegate.check.checker import Checker
from racegate.explore.generate import generate, seeded
from racegate.faults.catalogue import find_fault
from racegate.history.finding import ALL_ORACLES, FindingKind, Oracle
from racegate.history.observe import Boundary, Observation
from racegate.history.trace import Access, HostAccess, OpRecord, TraceEvent
from racegate.oracles.ownership import PageMistake, find_wrong_pages
from racegate.scenario.settings import CacheMode, EngineSpec
from racegate.scenario.spec import Image, OwnScenario, Request
from support import checker

A_PROMPT = (1, 2, 3, 4, 5)
ENGINE = EngineSpec(cache_mode=CacheMode.OFFLOAD, block_size=4, state_interval=4)
SCRIPT = OwnScenario(
    name="pages",
    title="A stores its first four tokens; B and C come later",
    engine=ENGINE,
    requests=(
        Request(name="A", arrive=0, prompt=A_PROMPT, max_tokens=1),
        Request(name="B", arrive=1, prompt=(*A_PROMPT, 6), max_tokens=1),
        Request(
            name="D",
            arrive=1,
            prompt=A_PROMPT,
            max_tokens=1,
            images=(Image(start=0, grid=(1, 1, 2)),),
        ),
        Request(name="C", arrive=1, prompt=(7, 8, 9, 1, 2), max_tokens=1),
    ),
)
POOL, HOST = 1, 2  # storages


def planned(step: int, **requests: tuple[tuple[int, ...], int, int]) -> Observation:
    """A plan. requests: blocks that each takes, tokens (0 where its load was lost, and it does not
    run), and those of the prefix loaded there
    """
    return Observation(
        step=step,
        boundary=Boundary.SCHEDULED,
        values={
            "plan": tuple((name, tokens, 0) for name, (_, tokens, _) in requests.items() if tokens)
        },
        detail={
            "computed": {name: loaded for name, (_, _, loaded) in requests.items()},
            "taking": {
                name: ((blocks, blocks), (blocks, blocks), loaded)
                for name, (blocks, _, loaded) in requests.items()
            },
        },
    )


PLANS = (
    planned(0, A=((3,), 4, 0)),
    planned(1, B=((3,), 2, 4)),
    planned(2, C=((3,), 4, 0)),
    planned(3, B=((2,), 0, 4), C=((3,), 4, 0)),
    planned(4, A=((3,), 4, 0), B=((2,), 2, 4)),
    planned(5, A=((3, 5), 4, 0)),
    planned(6, B=((3, 5), 2, 8)),
    planned(7, D=((3,), 2, 4)),
)


def op(name: str, step: int, *accesses: Access) -> OpRecord:
    return OpRecord(f"{name}@{step}", step, 1, 0, (), accesses)


def rows(storage: int, row: int, *, is_write: bool) -> Access:
    buffer = "kv.0" if storage == POOL else "saved_kv.0_cpu"
    return Access(buffer, storage, 1 << row, is_write)


def computed(step: int, *, block: int = 3) -> OpRecord:
    both = (rows(POOL, block, is_write=False), rows(POOL, block, is_write=True))
    return op("kernel:layer.0", step, *both)


def zeroed(step: int) -> OpRecord:
    return op("kernel:zero.kv.0", step, rows(POOL, 3, is_write=True))


def stored(request: str, step: int, *, block: int = 3) -> OpRecord:
    pool, host = rows(POOL, block, is_write=False), rows(HOST, 0, is_write=True)
    return op(f"d2h:save.kv.0.{request}", step, pool, host)


def loaded(request: str, step: int, *, block: int = 3) -> OpRecord:
    host, pool = rows(HOST, 0, is_write=False), rows(POOL, block, is_write=True)
    return op(f"h2d:load.kv.0.{request}", step, host, pool)


FREED = HostAccess("host:evict@1", 1, 0, (), rows(HOST, 0, is_write=True))
MISTAKES = {
    "nothing": ((computed(0), stored("A", 0), zeroed(1), loaded("B", 1), computed(1)), []),
    "stored before the kernel": ((stored("A", 0), computed(0)), ["early", "early"]),
    "stored between two kernels": ((computed(0), stored("A", 0), computed(0)), ["early"]),
    "another block stored": ((computed(0), stored("A", 0, block=2)), ["early"]),
    "stored behind the next owner": (
        (computed(0), computed(2), stored("A", 0), computed(2)),
        ["anothers"],
    ),
    "stored behind a later step of its own": (
        (computed(0), computed(4), stored("A", 0)),
        ["unfilled", "anothers"],
    ),
    "another block of its own stored": (
        (computed(5, block=5), stored("A", 5, block=5)),
        ["anothers"],
    ),
    "stored where another was loaded": (
        (computed(0), stored("A", 0), computed(4), loaded("B", 4), stored("A", 4)),
        ["unfilled", "anothers", "anothers"],
    ),
    "stored when the next owner has it": (
        (computed(0), zeroed(2), stored("A", 0)),
        ["given-back"],
    ),
    "loaded from memory given back": (
        (computed(0), stored("A", 0), FREED, loaded("B", 1), computed(1)),
        ["given-back"],
    ),
    "loaded before zeroing": (
        (computed(0), stored("A", 0), loaded("B", 1), zeroed(1), computed(1)),
        ["zeroed", "unfilled"],
    ),
    "zeroed behind the kernel": ((computed(0), zeroed(0)), ["zeroed"]),
    "a load that was lost": ((computed(0), computed(3)), []),
    "loaded behind the kernel": (
        (computed(0), stored("A", 0), computed(1), loaded("B", 1)),
        ["unfilled"],
    ),
    "loaded into the next owner's": (
        (computed(0), stored("A", 0), computed(2), loaded("B", 1)),
        ["given-back"],
    ),
    "loaded into another block": (
        (computed(0), stored("A", 0), loaded("B", 1, block=2), computed(1)),
        ["anothers", "unfilled"],
    ),
    "a shorter prefix loaded": (
        (computed(0), stored("A", 0), loaded("B", 6)),
        ["anothers"],
    ),
    "a prefix of another image loaded": (
        (computed(0), stored("A", 0), loaded("D", 7)),
        ["anothers"],
    ),
    "another prefix loaded": (
        (computed(0), stored("A", 0), computed(2), stored("C", 2), loaded("B", 1)),
        ["anothers", "given-back"],
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_each_mistake_is_found_where_everything_is_waited_for(name: str) -> None:
    events, mistakes = MISTAKES[name]
    found = find_wrong_pages(events, PLANS, SCRIPT, {})
    assert [page.mistake for page in found] == mistakes
    assert all(page.buffer in ("kv.0", "saved_kv.0_cpu") for page in found)


def test_every_mistake_is_among_them() -> None:
    assert {mistake for _, found in MISTAKES.values() for mistake in found} == set(PageMistake)


def test_other_cache_modes_have_no_tiers() -> None:
    engine = msgspec.structs.replace(ENGINE, cache_mode=CacheMode.ALIGN)
    events: tuple[TraceEvent, ...] = (stored("A", 0), computed(0))
    assert find_wrong_pages(events, PLANS, msgspec.structs.replace(SCRIPT, engine=engine), {}) == []


def test_only_owners_see_an_ordered_store_of_the_next_requests_pages() -> None:
    """Nobody hits the prefix, so no value is wrong yet, and every access is waited for."""
    fault, judge = find_fault("store-posted-after-reuse"), checker("offload-nic-preempted")
    run = judge.execute(fault=fault)
    (found,) = judge.judge(run, fault=fault).findings
    assert (found.kind, found.signature) == (FindingKind.PAGE, "page/anothers/d2h:save")
    assert (found.expected, found.actual) == (["A", 0], ["B", 1])
    assert judge.judge(run, fault=fault, oracles=ALL_ORACLES - {Oracle.OWNERSHIP}).findings == ()


def test_drawn_scenarios_with_tiers_are_silent() -> None:
    drawn = (generate(seeded(5, index), name=f"drawn-{index}") for index in range(30))
    with_tiers = [one for one in drawn if one.engine.cache_mode is CacheMode.OFFLOAD]
    assert len(with_tiers) > 5
    for one in with_tiers:
        assert Checker(one).run().findings == (), one.name
