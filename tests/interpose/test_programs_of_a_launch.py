"""The programs of one launch: what is found is what a look at every byte finds."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cuda_torch import needs_cuda_torch
from racegate.history.finding import Hazard
from racegate.interpose.kernels.interpreted.accesses import AtomicEffect, MissingEdge, ProgramAccess
from racegate.interpose.kernels.interpreted.bounds import given_memory, outside
from racegate.interpose.kernels.interpreted.dependent import (
    PhasedLaunch,
    behind,
    judge_dependent,
)
from racegate.interpose.kernels.interpreted.lanes import judge_lanes
from racegate.interpose.kernels.interpreted.noting import uses_atomics
from racegate.interpose.kernels.interpreted.programs import judge_programs
from racegate.interpose.kernels.triton_kernels import BY_ATOMICS
from racegate.interpose.outcome import Ending, Outcome, Plan
from racegate.order.ranges import merged
from racegate.targets.program.launch import DeviceServer, Program

LAUNCHES = Path(__file__).parent / "launches"
BASE = 1 << 40  # an address

ELEMENTS = st.lists(st.integers(0, 11), max_size=5)
KINDS = st.sampled_from(("load", "store", "atomic"))
NOTHING, BOTH = AtomicEffect.NOTHING, AtomicEffect.ACQUIRES | AtomicEffect.RELEASES
EFFECTS = st.sampled_from((NOTHING, AtomicEffect.ACQUIRES, AtomicEffect.RELEASES, BOTH))
DRAWN = st.lists(st.tuples(st.integers(0, 2), KINDS, ELEMENTS, st.sampled_from((2, 4))), max_size=7)
COUNTED = st.lists(
    st.tuples(
        st.integers(0, 2), KINDS, st.lists(st.integers(0, 2), min_size=1, max_size=2), EFFECTS
    ),
    max_size=9,
)


def touch(
    at: int,
    program: int,
    kind: str,
    elements: list[int],
    size: int,
    handing: AtomicEffect = AtomicEffect.NOTHING,
) -> ProgramAccess:
    """Each its own line; what is stored is the number of the touch, in every byte."""
    values = np.full(len(elements), at, np.uint8 if size == 1 else f"u{size}")
    values *= values.dtype.type(int("01" * size, 16))
    return ProgramAccess(
        addresses=np.array([BASE + size * element for element in elements], np.uint64),
        size=size,
        program=program,
        at=at,
        place=("kernel.py", at, "kernel"),
        is_write=kind != "load",
        is_atomic=kind == "atomic",
        values=values if kind == "store" else None,
        handing=handing,
        shape=(len(elements),),
    )


def bytes_of(one: ProgramAccess) -> set[int]:
    return {int(low) + byte for low in one.addresses for byte in range(one.size)}


def handed_over(touches: list[ProgramAccess]) -> set[tuple[int, int]]:
    """Which touch comes before which, from the definition: edges, and the ways along them."""
    edges = {
        (a.at, b.at) for a in touches for b in touches if a.program == b.program and a.at < b.at
    }
    for b in touches:
        if b.handing & AtomicEffect.ACQUIRES:
            for a in touches:
                if a.handing & AtomicEffect.RELEASES and a.at < b.at and bytes_of(a) & bytes_of(b):
                    edges.add((a.at, b.at))
    for middle in touches:
        into = {a for a, b in edges if b == middle.at}
        out = {b for a, b in edges if a == middle.at}
        edges |= {(a, b) for a in into for b in out}
    return edges


def pairs_by_byte(touches: list[ProgramAccess]) -> set[tuple[int, int]]:
    """Every pair of touches, byte by byte."""
    before, found = handed_over(touches), set()
    for at, second in enumerate(touches):
        for first in touches[:at]:
            is_pair = first.program != second.program and (first.is_write or second.is_write)
            both_atomic = first.is_atomic and second.is_atomic
            is_ordered = (first.at, second.at) in before
            if (
                is_pair
                and not both_atomic
                and not is_ordered
                and bytes_of(first) & bytes_of(second)
            ):
                found.add((first.at, second.at))
    return found


def check_races(touches: list[ProgramAccess]) -> None:
    touches = [one for one in touches if one.addresses.size]
    races = judge_programs(touches).races
    assert {(race.first.at, race.second.at) for race in races} == pairs_by_byte(touches)
    for race in races:
        common = bytes_of(race.first) & bytes_of(race.second)
        assert set(range(race.low, race.high)) & common


@given(DRAWN)
def test_races_are_those_of_every_byte_by_itself(
    drawn: list[tuple[int, str, list[int], int]],
) -> None:
    check_races([touch(at, *one) for at, one in enumerate(drawn)])


@given(COUNTED)
def test_atomic_operations_order_what_their_definition_says(
    drawn: list[tuple[int, str, list[int], AtomicEffect]],
) -> None:
    """The programs one after the other, as the interpreter runs them."""
    in_order = sorted(drawn, key=lambda one: one[0])
    check_races(
        [
            touch(
                at,
                program,
                kind,
                elements,
                4,
                handing if kind == "atomic" else NOTHING,
            )
            for at, (program, kind, elements, handing) in enumerate(in_order)
        ]
    )


def test_one_value_that_all_write_is_no_race_unless_one_reads_it() -> None:
    both = [touch(0, 0, "store", [1], 4), touch(0, 1, "store", [1], 4)._replace(at=1)]
    assert not judge_programs(both).races
    assert judge_programs([*both, touch(2, 2, "load", [1], 4)]).races
    assert judge_programs([both[0], touch(1, 1, "store", [1], 4)]).races


def released(*, barriers: int, elements: int) -> list[ProgramAccess]:
    """One program stores a tensor and releases; another one acquires and loads."""
    return [
        touch(0, 0, "store", list(range(elements)), 4),
        touch(1, 0, "atomic", [9000], 4, BOTH)._replace(syncs=barriers),
        touch(2, 1, "atomic", [9000], 4, BOTH)._replace(syncs=barriers),
        touch(3, 1, "load", [1], 4)._replace(syncs=barriers),
    ]


def test_a_release_is_of_one_thread_unless_a_barrier_stands_before_it() -> None:
    found = judge_programs(released(barriers=0, elements=64), warps=4)
    assert [race.lack for race in found.races] == [MissingEdge.RELEASE]
    for warps, barriers, elements in ((4, 1, 64), (1, 0, 64), (4, 0, 32)):
        found = judge_programs(released(barriers=barriers, elements=elements), warps=warps)
        assert (found.races, found.ordered) == ([], 1)


def test_a_volatile_load_may_order_and_is_counted() -> None:
    touches = released(barriers=1, elements=4)
    volatile = touches[2]._replace(is_write=False, handing=AtomicEffect.MAYBE)
    found = judge_programs([*touches[:2], volatile, touches[3]], warps=4)
    assert (found.races, found.ordered, found.untold) == ([], 0, 1)


def lanes_of(at: int, kind: str, elements: list[int], **more: int) -> ProgramAccess:
    return touch(at, 0, kind, elements, 4)._replace(**more)


@given(st.permutations(range(128)), st.sampled_from((2, 4, 8)))
def test_lanes_race_where_a_warp_reads_what_another_one_stored(
    order: list[int], warps: int
) -> None:
    """With 128 elements and four warps each thread has one; with two warps it has one or two."""
    store, load = lanes_of(0, "store", list(range(128))), lanes_of(1, "load", order)
    found = judge_lanes([store, load], warps)
    layouts = [1, 2] if warps == 2 else [1]
    parted = [
        [element // (32 * a) % warps != lane // (32 * b) % warps for a in layouts for b in layouts]
        for lane, element in enumerate(order)
        if lane != element
    ]
    is_sure, may_race = any(map(all, parted)), any(map(any, parted)) or (warps > 4 and parted != [])
    assert [race.lack for race in found.races] == ([MissingEdge.BARRIER] if is_sure else [])
    behind = load._replace(barriers=1, syncs=1)
    assert judge_lanes([store, behind], warps) == ([], 0, 0)
    behind_a_sum = load._replace(syncs=1)
    assert judge_lanes([store, behind_a_sum], warps).races == []
    assert judge_lanes([store, behind_a_sum], warps).untold == may_race
    assert judge_lanes([store, load], 1).races == []


def test_two_lanes_of_one_store_race_unless_they_store_one_value() -> None:
    twice = lanes_of(0, "store", [1, 2, 1])
    assert judge_lanes([twice], 4).races == []
    other = twice._replace(values=np.array([1, 2, 3], np.uint32))
    assert [race.lack for race in judge_lanes([other], 4).races] == [MissingEdge.ONE_LANE]


def add_to(count):  # type: ignore[no-untyped-def]
    return count.atomic_add(1)


def counts(count):  # type: ignore[no-untyped-def]
    return add_to(count)


def test_atomic_operations_are_found_in_what_a_kernel_calls() -> None:
    assert uses_atomics(counts)
    assert not uses_atomics(touch)


def judged(device: DeviceServer, file: str) -> tuple[set[str], set[str], Outcome]:
    """Names of the kernels of a file, and of those in which something is found."""
    kernels = LAUNCHES / file
    outcome = device.run(Program((str(kernels),), timeout_s=120), Plan(), is_quiet=True)
    assert outcome.ending is Ending.FINISHED
    names = set(re.findall(r"def (\w+_(?:right|wrong))\(", kernels.read_text()))
    found = {race.first.operation.removeprefix("kernel ") for race in outcome.findings}
    return names, found, outcome


@needs_cuda_torch
@pytest.mark.parametrize(
    "file", ["kernels.py", "handing.py", "lanes.py", "outside.py", "unwritten.py"]
)
def test_small_kernels_are_judged_right(device: DeviceServer, file: str) -> None:
    """Of each kernel that is wrong something is found, and nothing of its twin."""
    names, found, outcome = judged(device, file)
    assert found == {name for name in names if name.endswith("_wrong")}
    assert len(names) >= 2 * len(found) >= 12
    assert {
        one.name: one.launches for one in outcome.kernels if one.name in names
    } == dict.fromkeys(names, 1)


@given(
    st.lists(st.integers(0, 40), max_size=6),
    st.sampled_from((1, 2, 4)),
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 9)), max_size=4),
)
def test_an_element_is_outside_if_one_of_its_bytes_is(
    starts: list[int], size: int, memory: list[tuple[int, int]]
) -> None:
    known = {byte for low, length in memory for byte in range(low, low + length)}
    expected = [not known.issuperset(range(low, low + size)) for low in starts]
    ranges = merged((low, low + length) for low, length in memory)
    beyond = outside(np.array(starts, np.uint64), size, ranges)
    assert (beyond is not None) is any(expected)
    assert beyond is None or beyond.tolist() == expected


def test_what_may_hold_a_pointer_leaves_the_memory_open() -> None:
    class Pointer:
        def data_ptr(self) -> int:
            return 8

    whole = torch.zeros(4)
    low = whole.data_ptr()
    given = given_memory((whole[1:], 3, None, "fp32", (2.0, len), torch.float32))
    assert given == ((low, low + 16),)
    assert given_memory((whole, Pointer())) is None
    assert given_memory((whole, (Pointer(),))) is None


@needs_cuda_torch
def test_launches_that_begin_early_are_judged_right(device: DeviceServer) -> None:
    """Each chain of launches by the function that makes it."""
    names, _, outcome = judged(device, "dependent.py")
    found = {code for race in outcome.findings for _, _, code in race.second.stack} & names
    assert found == {name for name in names if name.endswith("_wrong")}
    assert len(names) == 2 * len(found) == 14
    lacks = {race.edge for race in outcome.findings}
    assert lacks == {MissingEdge.WAIT.value, MissingEdge.WAIT_BETWEEN.value}


def phased(number: int, kind: str, *, waits: bool, triggers: int | None) -> PhasedLaunch:
    """One program: it waits or not, touches one element, and triggers before that or behind it."""
    touches = (touch(0, 0, kind, [1], 4)._replace(place=("kernel.py", number, "kernel")),)
    return PhasedLaunch(
        f"kernel_{number}",
        (),
        touches,
        {0: 0} if waits else {},
        {} if triggers is None else {0: triggers},
    )


def ended_before(launches: list[PhasedLaunch]) -> dict[int, set[int]]:
    """By launch those that have ended when it touches memory, from the definition: the earliest
    times at which each begins, waits, triggers and ends, if all that is not ordered is fast but one
    that takes for ever.
    """
    never = 1 << 30
    found: dict[int, set[int]] = {at: set() for at in range(len(launches))}
    for slow in range(len(launches)):
        ends, triggered = [0] * len(launches), [0] * len(launches)
        for at, one in enumerate(launches):
            begins = triggered[at - 1] if at else 0
            touches = max(begins, ends[at - 1]) if at and one.waits else begins
            ends[at] = never if at == slow else touches
            is_early = one.triggers.get(0) == 0
            triggered[at] = touches if is_early else ends[at]
            if at > slow and touches >= never:
                found[at].add(slow)
    return found


@given(
    st.lists(
        st.tuples(st.sampled_from(("load", "store")), st.booleans(), st.sampled_from((0, 1, None))),
        max_size=6,
    )
)
def test_a_launch_races_with_those_that_may_not_have_ended(
    drawn: list[tuple[str, bool, int | None]],
) -> None:
    """All launches but the first begin early."""
    launches = [
        phased(at, kind, waits=waits, triggers=triggers)
        for at, (kind, waits, triggers) in enumerate(drawn)
    ]
    ended, running = ended_before(launches), None
    for at, launch in enumerate(launches):
        races = [] if running is None else judge_dependent(running, launch)
        running = behind(running, launch)
        expected = {
            before
            for before in range(at)
            if before not in ended[at] and "store" in (drawn[before][0], drawn[at][0])
        }
        assert {race.first.place[1] for race in races} == expected


@needs_cuda_torch
def test_what_is_found_names_programs_and_lines(device: DeviceServer) -> None:
    _, _, outcome = judged(device, "kernels.py")
    race = next(one for one in outcome.findings if one.first.operation == "kernel shift_wrong")
    assert (race.hazard, race.pairs) == (Hazard.WRITE_AFTER_READ, ())
    assert race.first.stack[0][2] == "shift_wrong"
    assert "program 1" in race.second.lane
    assert outcome.not_seen[BY_ATOMICS] == 2


@needs_cuda_torch
def test_what_a_second_order_shows_changes_no_value(device: DeviceServer, tmp_path: Path) -> None:
    """The launch runs once more, from its last program on; the program sees the first run alone."""
    outcome = ran(device, tmp_path, TICKET)
    assert outcome.message == ""
    assert outcome.not_seen[BY_ATOMICS] >= 1


@needs_cuda_torch
def test_what_loops_count_converts_and_the_largest_of_nan_has_a_place(
    device: DeviceServer, tmp_path: Path
) -> None:
    assert ran(device, tmp_path, CONVERTED).message == ""


def ran(device: DeviceServer, folder: Path, source: str) -> Outcome:
    script = folder / "program.py"
    script.write_text("import torch, triton, triton.language as tl\n" + source)
    return device.run(Program((str(script),), timeout_s=120), Plan(), is_quiet=True)


CONVERTED = """
@triton.jit
def offsets(y, B: tl.constexpr):
    for i in range(1, -1, -1):
        at = (i * B - 0).to(tl.int64) + tl.arange(0, B)
        tl.store(y + at, at)

@triton.jit
def largest(x, y, B: tl.constexpr):
    rows, columns = tl.arange(0, 2)[:, None], tl.arange(0, B)[None, :]
    value, place = tl.max(tl.load(x + rows * B + columns), axis=1, return_indices=True)
    tl.store(y + tl.arange(0, 2), place)

y = torch.zeros(8, device="cuda", dtype=torch.int64)
offsets[(1,)](y, B=4)
assert y.tolist() == list(range(8))
x = torch.full((2, 4), torch.nan)
x[1] = torch.tensor([1, torch.nan, 3, 2])
largest[(1,)](x.cuda(), y, B=4)
assert 0 <= y[0] < 4 and y[1] == 2
"""

TICKET = """
@triton.jit
def ticket(y, total, count):
    me = tl.program_id(0)
    tl.store(y + me, tl.atomic_add(count, 1))
    tl.debug_barrier()
    if tl.atomic_add(count + 1, 1) == 3:
        tl.store(total, tl.load(y) + 10 * tl.load(y + 3))

y = torch.zeros(4, device="cuda", dtype=torch.int32)
count = torch.zeros(2, device="cuda", dtype=torch.int32)
total = torch.zeros(1, device="cuda", dtype=torch.int32)
ticket[(4,)](y, total, count)
assert (y.tolist(), count.tolist(), total.tolist()) == ([0, 1, 2, 3], [4, 4], [30])
"""
