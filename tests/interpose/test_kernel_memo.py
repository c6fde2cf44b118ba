"""Kernels whose effect is written again instead of running: only where all that they load is as it
was.
"""

from __future__ import annotations

import mmap
import zlib
from hashlib import blake2b
from types import ModuleType, SimpleNamespace

import msgspec
import numpy as np
import pytest
import torch

from kept_launches import CALL, add_kept, add_vouched, is_mapped, on, opened, span
from racegate.interpose.device.spans import DEVICE_BASE
from racegate.interpose.kernels.kept import effects as kept_effects
from racegate.interpose.kernels.kept import memo as kept_memo
from racegate.interpose.kernels.kept.calls import Call, call_of
from racegate.interpose.kernels.kept.effects import LaunchEffect, LinesRun
from racegate.interpose.kernels.kept.memo import Memo


def for_others(memo: Memo) -> bytes:
    """What processes of the same packages take over of a memo."""
    return msgspec.msgpack.encode(Memo().new_for_others(memo.dump()))


def test_what_was_loaded_has_to_be_as_it_was_before_the_kernel_wrote() -> None:
    memo, source, target = opened(), np.array([1, 2]), np.array([10, 10])
    add_kept(memo, source, target)
    assert memo.find(CALL, reaches=is_mapped) is None  # the target holds 11 and 12 by now
    target[:] = 10
    assert memo.find(CALL, reaches=is_mapped) == (span(source), span(target))
    assert target.tolist() == [11, 12]


def test_another_source_runs_the_kernel() -> None:
    memo, source, target = opened(), np.array([1, 2]), np.array([10, 10])
    add_kept(memo, source, target)
    source[0], target[:] = 7, 10
    assert memo.find(CALL, reaches=is_mapped) is None
    assert target.tolist() == [10, 10] and memo.hits == 0


def test_of_two_stores_to_one_place_the_first_says_what_was_there() -> None:
    memo, cell = opened(), np.array([5])
    memo.begin()
    for value in (6, 7):
        memo.note_store(lambda: span(cell))
        cell[0] = value
    memo.end(CALL, (), span(cell), span(cell))
    cell[0] = 6
    assert memo.find(CALL, reaches=is_mapped) is None
    cell[0] = 5
    assert memo.find(CALL, reaches=is_mapped) is not None and cell[0] == 7


def test_an_address_out_of_a_tensor_may_be_no_memory_any_more() -> None:
    """A kernel that is given addresses in a tensor, as SGLang's of the prefixes' tables is."""
    memo, addresses, target = opened(), np.array([0]), np.array([10])
    with mmap.mmap(-1, mmap.PAGESIZE) as pages:
        view = np.frombuffer(pages, np.int64, 1)
        addresses[0] = view.ctypes.data
        memo.begin()
        memo.end(on(addresses, target), (*span(addresses), *span(view)), span(view), span(target))
        assert memo.find(on(addresses, target), reaches=is_mapped) is not None
        del view
    addresses[0] = 0
    assert memo.find(on(addresses, target), reaches=is_mapped) is None


def test_what_was_written_at_an_address_out_of_a_tensor_is_written_where_there_is_memory() -> None:
    """A kernel that is given addresses in a tensor and only stores there, as vLLM's of the blocks
    to be zeroed: it is to be judged anew where the device has no such memory.
    """
    memo, addresses, target = opened(), np.array([0]), np.array([10])
    memo.begin()
    target[0] = 0
    memo.end(on(addresses), span(addresses), span(addresses), span(target))
    target[0] = 10
    assert memo.find(on(addresses), reaches=lambda low, high: False) is None and target[0] == 10
    assert memo.find(on(addresses), reaches=is_mapped) is not None and target[0] == 0


def test_others_take_over_what_lies_where_the_device_has_its_memory_everywhere() -> None:
    addresses, place = np.array([0]), ((DEVICE_BASE, DEVICE_BASE + 8),)
    memo, call = Memo(), on(addresses)
    reads = ((0, 0, 8), (-1, DEVICE_BASE, 8))
    found = blake2b(bytes(8), digest_size=16).digest()
    memo.vouch(call, LaunchEffect(((0, 0, 8),), found, found, reads, (), zlib.compress(b"")))
    other = Memo()
    other.load(for_others(memo))
    both = tuple(sorted((*span(addresses), *place)))
    assert other.find(call, reaches=lambda low, high: True) == (both, ())


def test_nothing_is_kept_unless_it_is_open() -> None:
    memo, source, target = Memo(), np.array([1]), np.array([10])
    add_kept(memo, source, target)
    target[:] = 10
    assert memo.find(CALL, reaches=is_mapped) is None


def test_a_recorded_run_takes_only_what_was_judged_and_loads_what_was_written() -> None:
    memo, source, target = opened(), np.array([1, 2]), np.array([10, 10])
    add_kept(memo, source, target, on(source, target))
    target[:] = 10
    assert memo.find(on(source, target), is_recording=True, reaches=is_mapped) is None
    memo = opened()
    add_vouched(memo, source, target, on(source, target))
    low = source.ctypes.data
    assert (
        memo.find(on(source, target), ((low, low + 1),), is_recording=True, reaches=is_mapped)
        is None
    )
    assert (
        memo.find(on(source, target), ((low - 8, low),), is_recording=True, reaches=is_mapped)
        is not None
    )


def test_what_others_take_over_was_judged_and_has_no_address_of_this_process() -> None:
    memo, source, target = opened(), np.array([1, 2]), np.array([10, 10])
    add_kept(memo, source, target, on(source, target))
    add_vouched(memo, source, target, on(target))  # its source is in no tensor of the launch
    unknown = Call("module:kernel||(1,)", on(source, target).regions)
    add_vouched(memo, source, target, unknown)
    assert Memo().new_for_others(memo.dump()) == {}
    add_vouched(memo, source, target, on(source, target))
    other, here, there = Memo(), np.array([1, 2]), np.array([0, 0])
    other.load(for_others(memo))
    assert other.find(on(here, there), reaches=is_mapped, is_recording=True) is not None
    assert there.tolist() == [1, 2]
    assert other.new_for_others(memo.dump()) == {}


def test_what_is_new_alone_goes_to_the_process_that_was_forked() -> None:
    memo, source, target = opened(), np.array([1]), np.array([10])
    add_kept(memo, source, target)
    child = Memo()
    child.load(memo.dump())
    assert child.dump() == Memo().dump()


def test_another_process_of_the_same_addresses_knows_the_effects() -> None:
    memo, source, target = opened(), np.array([1]), np.array([10])
    add_kept(memo, source, target)
    other = Memo()
    other.load(memo.dump())
    target[:] = 10
    assert other.find(CALL, reaches=is_mapped) is not None and target[0] == 11


def test_the_same_bytes_at_other_addresses_have_the_same_effect() -> None:
    memo, source, target = opened(), np.array([1, 2]), np.array([10, 10])
    add_kept(memo, source, target, on(source, target))
    there, here = np.array([1, 2]), np.array([10, 10])
    assert memo.find(on(there, here), reaches=is_mapped) == (span(there), span(here))
    assert here.tolist() == [11, 12]


def test_what_lies_side_by_side_here_need_not_do_so_elsewhere() -> None:
    memo, both, target = opened(), np.array([1, 2, 3, 4]), np.array([0])
    call = on(both[:2], both[2:], target)
    memo.begin()
    memo.note_store(lambda: span(target))
    target[0] = both.sum()
    effect = memo.end(call, span(both), span(both), span(target))
    assert effect is not None and [region for region, *_ in effect.inputs] == [0, 1]
    first, last, there = np.array([1, 2]), np.array([3, 4]), np.array([0])
    assert memo.find(on(first, last, there), reaches=is_mapped) == (
        (*sorted(span(first) + span(last)),),
        span(there),
    )
    assert there[0] == 10
    last[1] = 5
    assert memo.find(on(first, last, there), reaches=is_mapped) is None


@pytest.mark.parametrize(
    ("module", "limit", "value"),
    [(kept_effects, "_CALLS_MAX", 1), (kept_memo, "_BYTES_KEPT_MAX", 40)],
)
def test_no_more_is_kept_than_has_room(
    module: ModuleType, limit: str, value: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, limit, value)
    memo, source, target = opened(), np.array([1]), np.array([0])
    for value in (1, 2):  # each has 16 bytes before it and 8 behind it
        source[0], target[0] = value, 0
        add_kept(memo, source, target)
    source[0], target[0] = 1, 0
    assert memo.find(CALL, reaches=is_mapped) is not None
    source[0], target[0] = 2, 0
    assert memo.find(CALL, reaches=is_mapped) is None


def test_a_call_is_its_kernel_its_grid_and_its_arguments() -> None:
    executor = SimpleNamespace(fn=call_of, grid=(2, 1), pre_run_hooks=[])
    tensor = torch.zeros(3)
    call = call_of(executor, (tensor[1:], 4), {"BLOCK": 8})
    assert call is not None
    assert call.text.endswith(":call_of||(2, 1)|BLOCK|0+4/12:torch.float32|4|8")
    assert call.regions == ((tensor.data_ptr(), tensor.data_ptr() + 12),)
    assert call_of(executor, (torch.zeros(3)[1:], 4), {"BLOCK": 8}).text == call.text
    assert call_of(executor, (tensor, tensor, 4), {}) != call_of(executor, (tensor, call, 4), {})
    assert call_of(executor, (tensor[1:], 5), {"BLOCK": 8}) != call


def test_what_text_does_not_tell_apart_is_not_kept() -> None:
    executor = SimpleNamespace(fn=call_of, grid=(1,), pre_run_hooks=[])
    assert call_of(executor, (object(),), {}) is None
    executor.grid = lambda meta: (1,)
    assert call_of(executor, (1,), {}) is None


def test_memory_that_overlaps_in_part_is_not_kept() -> None:
    executor = SimpleNamespace(fn=call_of, grid=(1,), pre_run_hooks=[])
    numbers = np.zeros(8, np.int64)
    whole, half = torch.from_numpy(numbers), torch.from_numpy(numbers[4:])
    assert call_of(executor, (whole, half), {}) is None
    assert call_of(executor, (whole, whole[4:]), {}) is not None


class Notes:
    """Notes lines: `ran` are those of the launch that runs."""

    def __init__(self) -> None:
        self.ran: LinesRun = {}
        self.added: list[LinesRun] = []

    def set_apart(self) -> None:
        self.ran = {}

    def rejoin(self) -> LinesRun:
        return self.ran

    def add(self, lines: LinesRun) -> None:
        self.added.append(lines)


def test_where_lines_are_noted_a_launch_runs_once_and_its_lines_are_told_from_then_on() -> None:
    memo, source, target, notes = opened(), np.array([1, 2]), np.array([0, 0]), Notes()
    call = on(source, target)
    add_vouched(memo, source, target, call)
    memo.keep(notes)
    assert memo.find(call, reaches=is_mapped) is None  # nobody noted its lines
    memo.begin()
    notes.ran = {"kernels.py": (3, 4)}
    memo.end(call, span(source), span(source), span(target))
    assert memo.find(call, reaches=is_mapped) is not None and notes.added == [notes.ran]
    memo.keep()
    assert memo.find(call, is_recording=True, reaches=is_mapped) is not None  # it was judged before
    other, elsewhere = Memo(), Memo()
    other.load(memo.dump())  # of a process of the same sources
    other.keep(notes)
    assert other.find(call, reaches=is_mapped) is not None and notes.added == [notes.ran] * 2
    elsewhere.load(for_others(memo))
    assert elsewhere.find(call, reaches=is_mapped, is_recording=True) is not None
    elsewhere.keep(notes)
    assert elsewhere.find(call, reaches=is_mapped) is None  # its lines may stand elsewhere there


def first(value: int) -> int:
    return value + 1


def second(value: int) -> int:
    return value + 2


def test_of_an_edited_kernel_nothing_is_known_also_by_what_was_captured_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memo, cells = opened(), np.array([1, 2])
    calls = [Call(f"m:k|{memo.digest(one)}|(1,)", on(cells).regions) for one in (first, second)]
    undigested = Call("m:k||(1,)", on(cells).regions)
    for call in (*calls, undigested):
        add_vouched(memo, cells, cells, call)
    monkeypatch.setattr(first, "__code__", (lambda value: value - 1).__code__)
    memo.edited()
    assert [memo.find(call, reaches=is_mapped) is not None for call in (*calls, undigested)] == [
        False,
        True,
        False,
    ]
