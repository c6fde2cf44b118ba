"""The programs of one launch: what is found is what a look at every byte finds."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cuda_torch import needs_cuda_torch
from racegate.history.finding import Hazard
from racegate.interpose.kernels.interpreted.programs import ProgramAccess, judge_programs
from racegate.interpose.outcome import Ending, Plan
from racegate.targets.program.launch import DeviceServer, Program

KERNELS = Path(__file__).parent / "launches" / "kernels.py"
BASE = 1 << 40  # an address

ELEMENTS = st.lists(st.integers(0, 11), max_size=5)
KINDS = st.sampled_from(("load", "store", "atomic"))
DRAWN = st.lists(st.tuples(st.integers(0, 2), KINDS, ELEMENTS, st.sampled_from((2, 4))), max_size=7)


def touch(at: int, program: int, kind: str, elements: list[int], size: int) -> ProgramAccess:
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
    )


def bytes_of(one: ProgramAccess) -> set[int]:
    return {int(low) + byte for low in one.addresses for byte in range(one.size)}


def may_hand_over(one: ProgramAccess, other: ProgramAccess, touches: list[ProgramAccess]) -> bool:
    """Whether an atomic operation stands behind `one` and another one before `other`."""
    behind = any(t.is_atomic and t.program == one.program and t.at >= one.at for t in touches)
    before = any(t.is_atomic and t.program == other.program and t.at <= other.at for t in touches)
    return behind and before


def pairs_by_byte(touches: list[ProgramAccess]) -> set[tuple[int, int]]:
    """Every pair of touches, byte by byte."""
    found = set()
    for at, second in enumerate(touches):
        for first in touches[:at]:
            is_pair = first.program != second.program and (first.is_write or second.is_write)
            is_handed = may_hand_over(first, second, touches) or may_hand_over(
                second, first, touches
            )
            both_atomic = first.is_atomic and second.is_atomic
            if is_pair and not both_atomic and not is_handed and bytes_of(first) & bytes_of(second):
                found.add((first.at, second.at))
    return found


@given(DRAWN)
def test_races_are_those_of_every_byte_by_itself(
    drawn: list[tuple[int, str, list[int], int]],
) -> None:
    touches = [touch(at, *one) for at, one in enumerate(drawn)]
    touches = [one for one in touches if one.addresses.size]
    races, _ = judge_programs(touches)
    found = {(race.first.at, race.second.at) for race in races}
    assert found == pairs_by_byte(touches)
    for race in races:
        common = bytes_of(race.first) & bytes_of(race.second)
        assert set(range(race.low, race.high)) & common


def test_one_value_that_all_write_is_no_race_unless_one_reads_it() -> None:
    both = [touch(0, 0, "store", [1], 4), touch(0, 1, "store", [1], 4)._replace(at=1)]
    assert not judge_programs(both)[0]
    assert judge_programs([*both, touch(2, 2, "load", [1], 4)])[0]
    assert judge_programs([both[0], touch(1, 1, "store", [1], 4)])[0]


def test_what_may_be_handed_over_is_counted() -> None:
    touches = [
        touch(0, 0, "store", [1], 4),
        touch(1, 0, "atomic", [9], 4),
        touch(2, 1, "atomic", [9], 4),
        touch(3, 1, "load", [1], 4),
    ]
    assert judge_programs(touches) == ([], 1)


@needs_cuda_torch
def test_small_kernels_are_judged_right(device: DeviceServer) -> None:
    """Of each kernel that is wrong something is found, and nothing of its twin."""
    outcome = device.run(Program((str(KERNELS),), timeout_s=120), Plan(), is_quiet=True)
    assert outcome.ending is Ending.FINISHED
    names = set(re.findall(r"def (\w+_(?:right|wrong))\(", KERNELS.read_text()))
    found = {race.first.operation.removeprefix("kernel ") for race in outcome.findings}
    assert found == {name for name in names if name.endswith("_wrong")}
    assert len(names) == 2 * len(found) >= 20
    race = next(one for one in outcome.findings if one.first.operation == "kernel shift_wrong")
    assert (race.hazard, race.pairs) == (Hazard.WRITE_AFTER_READ, ())
    assert race.first.stack[0][2] == "shift_wrong"
    assert "program 1" in race.second.lane
    assert any("atomic" in line for line in outcome.not_seen)
