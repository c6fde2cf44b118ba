"""The persistent batch: rows with holes, condense, reorder and rotation, and the tables that move
with them.
"""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from racegate.device.virtual.device import VirtualDevice
from racegate.engine.rows.input_batch import InputBatch
from racegate.engine.rows.parts import swap_rows
from racegate.engine.state.counters import Counters
from racegate.engine.state.plan import PlanEntry

K = 3


def batch_of(names: str) -> tuple[InputBatch, Counters, list[np.ndarray]]:
    """A batch whose two tables hold each request's letter; the second is a block table."""
    device = VirtualDevice(("compute",))
    moved = device.host_buffer("moved", (8,), np.int32)
    cleared = device.host_buffer("cleared", (8,), np.int32)
    for table in (moved, cleared):
        table.write(np.zeros(8, np.int32))
    counters = Counters()
    batch = InputBatch((moved, cleared), (cleared,), counters, swap_rows=swap_rows)
    for name in names:
        row = batch.add(name)
        for table in (moved, cleared):
            table.write_row(row, ord(name))
    return batch, counters, [moved.storage.array, cleared.storage.array]


def entry(name: str, region: int) -> PlanEntry:
    computed, tokens = {0: (9, 1), 1: (3, 2), 2: (3, 6), 3: (0, 5)}[region]
    return PlanEntry(
        request=name,
        incarnation=0,
        tokens=tokens,
        drafts=0,
        computed=computed,
        prefill_len=9,
        blocks=(),
        state_blocks=(),
        known_tokens=None,
    )


def letters(table: np.ndarray, count: int) -> str:
    return "".join(chr(value) for value in table[:count])


def test_a_newcomer_takes_the_lowest_hole() -> None:
    batch, _, _ = batch_of("ABCD")
    batch.remove("B")
    batch.remove("D")
    assert batch.add("E") == 1
    assert batch.add("F") == 3
    assert batch.add("G") == 4
    assert batch.names() == ("A", "E", "C", "F", "G")


def test_condense_moves_the_last_row_into_the_lowest_hole() -> None:
    batch, counters, (moved, cleared) = batch_of("ABCDE")
    batch.remove("A")
    batch.remove("C")
    batch.condense()
    assert batch.names() == ("E", "B", "D")
    assert letters(moved, 3) == letters(cleared, 3) == "EBD"
    assert cleared[3:].tolist() == [0] * 5
    assert (counters.counts["row_moves"], counters.counts["condense_moves"]) == (2, 2)


def test_holes_at_the_end_are_dropped_without_a_move() -> None:
    batch, counters, _ = batch_of("ABC")
    batch.remove("C")
    batch.remove("B")
    batch.condense()
    assert batch.names() == ("A",)
    assert counters.counts["row_moves"] == 0


def test_every_permutation_of_up_to_five_rows() -> None:
    for count in range(1, 6):
        names = "ABCDE"[:count]
        for wanted in itertools.permutations(range(count)):
            batch, _, (moved, cleared) = batch_of(names)
            batch.permute(wanted)
            expected = "".join(names[source] for source in wanted)
            assert "".join(batch.names()) == expected
            assert letters(moved, count) == letters(cleared, count) == expected
            assert all(batch.rows[row] == name for name, row in batch.row_of.items())


@given(st.lists(st.integers(0, 3), min_size=1, max_size=8))
def test_reorder_sorts_by_region_and_leaves_rows_in_place_that_are_right(
    regions: list[int],
) -> None:
    names = "ABCDEFGH"[: len(regions)]
    entries = {name: entry(name, region) for name, region in zip(names, regions, strict=True)}
    batch, counters, (moved, _) = batch_of(names)
    batch.reorder(entries, threshold=1 + K)
    after = batch.names()
    of = dict(zip(names, regions, strict=True))
    assert [of[name] for name in after] == sorted(regions)
    assert letters(moved, len(after)) == "".join(after)
    for row, name in enumerate(names):
        if sorted(regions)[row] == of[name]:
            assert after[row] == name
    assert counters.counts["reorder_moves"] == sum(
        a != b for a, b in zip(names, after, strict=True)
    )


def test_rotation_needs_one_region() -> None:
    batch, _, _ = batch_of("ABC")
    entries = {"A": entry("A", 0), "B": entry("B", 0), "C": entry("C", 3)}
    assert not batch.rotate(("A", "C"), entries, threshold=1 + K)
    assert not batch.rotate(("A", "Z"), entries, threshold=1 + K)
    assert batch.names() == ("A", "B", "C")
    assert batch.rotate(("A", "B"), entries, threshold=1 + K)
    assert batch.names() == ("B", "A", "C")


def test_each_request_takes_the_row_of_the_next() -> None:
    batch, _, _ = batch_of("ABC")
    entries = {name: entry(name, 0) for name in "ABC"}
    assert batch.rotate(("A", "B", "C"), entries, threshold=1 + K)
    assert batch.names() == ("C", "A", "B")
