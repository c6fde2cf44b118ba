"""Shared runs say exactly what runs of their own say."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import count
from random import Random
from typing import Any

import pytest

from agreeing import agree
from racegate.check.sharing import SharedRuns, SharingWarning
from racegate.device.virtual.memo import OpMemo
from racegate.explore.generate import generate_holds
from racegate.faults.catalogue import find_fault
from racegate.history.schedule import LATE, Schedule, lane_late, parse_schedule
from support import IS_NIGHTLY, NAMES, checker

SEEDED = ("accepted-copy-after-row-move", "pinned-input-overwrite", "correction-wrong-epoch")
# Every other script without a fault or with one of them, in turn; nightly each with each.
ROUND = (None, *SEEDED)
CASES = [
    (name, fault)
    for place, name in enumerate(NAMES if IS_NIGHTLY else NAMES[1::2])
    for fault in (ROUND if IS_NIGHTLY else (ROUND[place % len(ROUND)],))
]


@pytest.mark.parametrize(("name", "fault"), CASES)
def test_sharing_changes_nothing(name: str, fault: str | None) -> None:
    seeded = None if fault is None else find_fault(fault)
    runs = SharedRuns(checker(name), seeded)
    random = Random(name)
    ranks = checker(name).scenario.engine.ranks
    schedules = [
        generate_holds(random.randrange, ranks=ranks) for _ in range(4 if IS_NIGHTLY else 2)
    ]
    late = (LATE, lane_late("counts")) if IS_NIGHTLY else (LATE,)
    for schedule in (*schedules, *late):
        alone = checker(name).run(schedule=schedule, fault=seeded)
        assert agree([runs.run(schedule), alone]), schedule.texts()


@pytest.mark.parametrize(("name", "ranks"), [("steady-mixed-accepts", 1), ("ranks-idle-steps", 2)])
def test_most_clean_schedules_are_really_shared(name: str, ranks: int) -> None:
    runs = SharedRuns(checker(name))
    random = Random(1)
    for _ in range(50):
        runs.run(generate_holds(random.randrange, ranks=ranks))
    assert runs.shared == 50
    assert runs.own == 0
    assert runs.taped == 50, "no schedule of a correct engine needs the engine again"


def test_a_schedule_that_goes_wrong_is_run_on_its_own() -> None:
    fault = find_fault("accepted-copy-after-row-move")
    runs = SharedRuns(checker("finish-and-condense"), fault)
    held = parse_schedule(["d2h:accepted_counts@3 until host:condense@4"])
    wrong = runs.run(held)
    assert {finding.kind for finding in wrong.findings} >= {"divergence"}
    assert (runs.own, runs.taped) == (1, 0)
    # And the shared state is not spoilt by it.
    clean = runs.run(parse_schedule(["d2h:sampled@2 until host:process@3"]))
    assert {finding.kind for finding in clean.findings} == {"conflict"}
    assert runs.taped == 1


def test_a_copy_that_a_hold_tears_is_not_on_the_tape() -> None:
    """It is one copy there."""
    runs = SharedRuns(checker("finish-and-condense"))
    torn = parse_schedule(["d2h:sampled@2[1:] until host:process@3"])
    alone = checker("finish-and-condense").run(schedule=torn)
    assert alone.holds[0].matched == 1
    assert agree([runs.run(torn), alone])
    assert (runs.own, runs.taped) == (1, 0)


def test_steps_named_after_requests_are_shared_too() -> None:
    runs = SharedRuns(checker("finish-and-condense"))
    schedule = parse_schedule(["d2h:valid_count@C.1 until host:prepare_inputs@C.2"])
    alone = checker("finish-and-condense").run(schedule=schedule)
    assert agree([runs.run(schedule), alone])
    assert runs.shared == 1


@pytest.mark.parametrize(
    "hold",
    [
        "counts/*@3 until forced",
        "d2h:valid_*@3 until host:condense@4",
        "d2h:valid_count@C.1 until host:prepare_inputs@A.0",
        "d2h:valid_count@4 until host:prepare_inputs@A.0",
    ],
)
def test_holds_by_lane_by_pattern_and_until_what_has_passed(hold: str) -> None:
    """Each holds something, and what has passed ends nothing."""
    runs = SharedRuns(checker("finish-and-condense"))
    schedule = parse_schedule([hold])
    alone = checker("finish-and-condense").run(schedule=schedule)
    assert agree([runs.run(schedule), alone])
    assert runs.holds_all(schedule) and alone.holds[0].matched
    assert not runs.holds_all(parse_schedule(["nothing:*@3 until forced"]))


def test_oracles_are_asked_where_other_contents_were_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where one speaks, the schedule gets a run of its own."""
    runs = SharedRuns(checker("finish-and-condense"))
    number, others = OpMemo.number, count(1 << 40)

    def never_shown(memo: OpMemo, *key: Hashable) -> int:
        return next(others) if key[0] == "shown" else number(memo, *key)

    asked: list[tuple[int, int]] = []

    def speaks(observed: Sequence[object], expected: Sequence[object]) -> object:
        asked.append((len(observed), len(expected)))
        return "something" if observed else None

    monkeypatch.setattr("racegate.check.sharing.find_divergence", speaks)
    runs.run(parse_schedule(["d2h:sampled@2 until host:process@3"]))
    assert not asked and runs.own == 0, "the same contents were shown"
    monkeypatch.setattr(OpMemo, "number", never_shown)
    runs.run(parse_schedule(["d2h:sampled@2 until host:process@3"]))
    ((observed, expected),) = asked
    assert observed == expected > 0
    assert (runs.shared, runs.own) == (1, 1)


def test_the_order_of_schedules_does_not_matter() -> None:
    random = Random(5)
    schedules = [generate_holds(random.randrange) for _ in range(12)] + [Schedule()]
    forwards = SharedRuns(checker("three-row-cycle"))
    backwards = SharedRuns(checker("three-row-cycle"))
    one = [forwards.run(schedule) for schedule in schedules]
    other = [backwards.run(schedule) for schedule in reversed(schedules)]
    for a, b in zip(one, reversed(other), strict=True):
        assert agree([a, b])


def test_sharing_that_gives_up_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """As an engine would that counts with an iterator, or whose modules were compiled."""
    subject = checker("steady-mixed-accepts").subject
    engine = subject.engine

    def counting(*arguments: Any) -> Any:
        made = engine(*arguments)
        made.ticks = count()
        return made

    monkeypatch.setattr(subject, "engine", counting)
    says = r"steady-mixed-accepts: .* itertools\.count .*ticks"
    with pytest.warns(SharingWarning, match=says) as said:
        runs = SharedRuns(checker("steady-mixed-accepts"))
    assert len(said) == 1, "once is enough"
    alone = checker("steady-mixed-accepts").run(schedule=LATE)
    assert agree([runs.run(LATE), alone])
    assert (runs.shared, runs.own) == (0, 1)
