"""What passes of SGLang's scheduler are given, beside what is true of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest

from racegate.targets.common.inside.watch import Seen
from racegate.targets.sglang.inside.truth import (
    ACCEPTED,
    BATCH,
    ROWS,
    UNTRUE_MAX,
    VERIFIED,
    PassTruth,
)

KNOWN = {"A": (5, 6, 7, 8), "B": (5, 6, 9)}


@dataclass
class Passes:
    """A small scheduler's passes. Slots are handed out in order, from 1 on."""

    seen: list[Seen] = field(default_factory=list)
    tables: dict[str, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._slots = count(1)

    def run(self, *asked: tuple[str, int, int], decodes: bool = False) -> None:
        """asked: by request, where its tokens start and end."""
        given: dict[str, Any] = {"req_pool_indices": [], "seq_lens": []}
        given |= {"input_ids": [], "positions": [], "out_cache_loc": []}
        for name, start, end in asked:
            table = self.tables.setdefault(name, [])
            table[start:] = [next(self._slots) for _ in range(start, end)]
            given["req_pool_indices"].append(list(KNOWN).index(name))
            given["seq_lens"].append(end)
            given["input_ids"] += KNOWN[name][start:end]
            given["positions"] += range(start, end)
            given["out_cache_loc"] += table[start:end]
        rows = {
            "requests": [name for name, _, _ in asked],
            "counts": [end - start for _, start, end in asked],
            "drafts": 0,
            "starts": None if decodes else [start for _, start, _ in asked],
            "table": [list(self.tables[name]) for name, _, _ in asked],
        }
        step = len(self.seen) // 2 + 1
        self.seen += [(step, BATCH, given), (step, ROWS, rows)]

    def truth(self) -> PassTruth:
        truth = PassTruth(KNOWN)
        truth.read(self.seen)
        return truth

    def spoil(self, name: str, field: str, at: int) -> None:
        """One value of the last pass is another."""
        values: Any = next(v for _, n, v in reversed(self.seen) if n == name)
        values[field][at] += 1


def decoding() -> Passes:
    """Prefills of A, in two chunks, and of B, and a step of both."""
    passes = Passes()
    passes.run(("A", 0, 2))
    passes.run(("A", 2, 3), ("B", 0, 2))
    passes.run(("A", 3, 4), ("B", 2, 3), decodes=True)
    return passes


def test_true_passes_are_silent_and_every_field_is_compared() -> None:
    truth = decoding().truth()
    assert truth.untrue == [] and truth.counters["slot_reuses"] == 0
    assert truth.compared == {"tokens": 7, "positions": 7, "length": 5, "slots": 7, "context": 7}


@pytest.mark.parametrize(
    ("spoilt", "what", "used", "true"),
    [
        ("input_ids", "tokens of request B in row 1", 10, 9),
        ("positions", "positions of request B in row 1", 3, 2),
        ("seq_lens", "length of request B in row 1", 4, 3),
        ("out_cache_loc", "slots of request B in row 1", 8, 7),
    ],
)
def test_a_value_that_is_not_true_is_told(spoilt: str, what: str, used: int, true: int) -> None:
    passes = decoding()
    passes.spoil(BATCH, spoilt, 1)
    assert [(w.step, w.what, w.used, w.true) for w in passes.truth().untrue] == [
        (3, what, used, true)
    ]


def test_a_slot_with_tokens_of_another_request_is_told() -> None:
    """B begins behind two tokens that it has in common with A: in A's slots, but not the third."""
    shared = Passes()
    shared.run(("A", 0, 3))
    shared.tables["B"] = shared.tables["A"][:2]
    shared.run(("B", 2, 3))
    assert shared.truth().untrue == []
    wrong = Passes()
    wrong.run(("A", 0, 3))
    wrong.tables["B"] = [wrong.tables["A"][0], wrong.tables["A"][2]]
    wrong.run(("B", 2, 3))
    (told,) = wrong.truth().untrue
    assert (told.what, told.used, told.true) == ("context at 1 of request B in row 1", 7, 6)


def test_slots_that_are_written_again_are_counted() -> None:
    passes = Passes()
    passes.run(("A", 0, 3))
    passes._slots = count(2)
    passes.run(("B", 0, 3))
    truth = passes.truth()
    assert truth.untrue == [] and truth.counters["slot_reuses"] == 2


def test_what_nobody_was_given_is_not_compared_and_few_values_are_told() -> None:
    passes = decoding()
    truth = PassTruth({"A": KNOWN["A"][:3], "B": ()})
    truth.read(passes.seen)
    assert truth.untrue == []
    for _ in range(2 * UNTRUE_MAX):
        passes.run(("A", 3, 4), decodes=True)  # the end of A does not stand still
    assert len(passes.truth().untrue) == UNTRUE_MAX


def verified(*counts: int, drafts: tuple[int, ...] = (8, 9, 3)) -> PassTruth:
    """A prefill of the first two tokens of A, then passes that verify three drafts. counts: how
    many are accepted of each pass, with the token behind them
    """
    known, table, start = {"A": (5, 6, 7, 8, 9, 4, 2)}, list(range(1, 20)), 2
    rows: dict[str, Any] = {"requests": ["A"], "table": [table], "drafts": 0}
    given: dict[str, Any] = {"req_pool_indices": [0], "seq_lens": [2], "input_ids": [5, 6]}
    given |= {"positions": [0, 1], "out_cache_loc": [1, 2]}
    seen: list[Seen] = [(1, BATCH, given), (1, ROWS, rows | {"starts": [0], "counts": [2]})]
    for step, accepted in enumerate(counts, start=2):
        places = list(range(start, start + 4))
        given = {"req_pool_indices": [0], "seq_lens": [start], "positions": places}
        token = known["A"][start] if start < len(known["A"]) else 1
        given |= {"input_ids": [token, *drafts], "out_cache_loc": table[start : start + 4]}
        seen.append((step, BATCH, given))
        seen.append((step, ROWS, rows | {"starts": None, "counts": [4], "drafts": 3}))
        seen.append((step, VERIFIED, {ACCEPTED: [accepted]}))
        start += accepted
    truth = PassTruth(known)
    truth.read(seen)
    return truth


def test_drafts_are_accepted_as_far_as_they_were_delivered() -> None:
    truth = verified(3)
    assert truth.untrue == [] and truth.compared["accepted count"] == 1
    assert truth.counters["rejections"] == 1 and truth.counters["full_rejects"] == 0
    assert verified(4, drafts=(8, 9, 4)).counters["full_accepts"] == 1
    assert verified(1, drafts=(3, 3, 3)).counters["full_rejects"] == 1


@pytest.mark.parametrize("count", [2, 4])
def test_another_accepted_count_is_told_with_the_request(count: int) -> None:
    (wrong,) = verified(count).untrue
    assert wrong.what == "accepted count of request A in row 0"
    assert wrong.used == count and wrong.true == 3


def test_a_step_that_begins_elsewhere_than_behind_the_accepted_drafts_is_told() -> None:
    truth = verified(3, 1)
    assert truth.untrue == []
    wrong = verified(2, 1).untrue[1:]
    assert [one.what.partition(" of ")[0] for one in wrong][:2] == ["tokens", "positions"]


def test_what_is_verified_behind_the_end_of_a_request_is_known_to_nobody() -> None:
    truth = verified(3, 1, 1, 1)
    assert truth.compared["accepted count"] == 2 and truth.untrue == []
