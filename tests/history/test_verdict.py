"""The rule of the verdict: each line of the table, and what is printed of what was tried."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from racegate.history.finding import Verdict, exit_code
from racegate.history.verdict import (
    NOTHING_TRIED,
    RULE,
    Facts,
    Reach,
    Tried,
    is_whole,
    verdict_of,
    verdict_text,
)

BY_HAND = Tried(reach=Reach.SOME, number=1)
EACH = Tried(reach=Reach.EACH_ALONE, number=18, known=18)
UNMET = ("condense_moves: 0, the scenario expects at least 1",)
# One example for each line of the table, in its order.
EXAMPLES = (
    Facts(is_broken=True, is_deadlocked=True, conflicts=1),
    Facts(is_deadlocked=True, conflicts=1, unmet=UNMET),
    Facts(is_wrong=True, conflicts=1, unmet=UNMET),
    Facts(conflicts=1, tried=BY_HAND, unmet=UNMET),
    Facts(conflicts=1, tried=EACH, is_compared=False),
    Facts(conflicts=1, tried=EACH, unmet=UNMET),
    Facts(conflicts=1, tried=EACH),
    Facts(unmet=UNMET),
    Facts(),
)

tried = st.builds(
    Tried, reach=st.sampled_from(Reach), number=st.integers(0, 3), known=st.integers(0, 3)
)
facts = st.builds(
    Facts,
    is_broken=st.booleans(),
    is_deadlocked=st.booleans(),
    is_wrong=st.booleans(),
    conflicts=st.integers(0, 2),
    unmet=st.sampled_from([(), UNMET]),
    is_compared=st.booleans(),
    tried=tried,
)


def is_harmful(known: Facts) -> bool:
    """Whether something is wrong with a run, or with the harness."""
    return known.is_broken or known.is_deadlocked or known.is_wrong


@pytest.mark.parametrize("number", range(len(RULE)), ids=[line.when for line in RULE])
def test_each_line_of_the_table_decides_an_example(number: int) -> None:
    example = EXAMPLES[number]
    assert [line.fits(example) for line in RULE].index(True) == number
    assert verdict_of(example) is RULE[number].verdict


@given(facts)
def test_benign_is_never_said_of_less_than_each_landing(known: Facts) -> None:
    if verdict_of(known) is Verdict.BENIGN:
        assert known.tried.number > 0
        assert known.tried.reach in (Reach.EACH_ALONE, Reach.COMBINATIONS, Reach.CLASSES)
        assert known.conflicts and not known.unmet and not is_harmful(known)


@given(facts)
def test_a_pass_rests_on_nothing_unmet_and_no_harm(known: Facts) -> None:
    is_pass = verdict_of(known) in (Verdict.PROVED, Verdict.BENIGN)
    assert not is_pass or not is_harmful(known)
    assert not is_pass or not known.unmet
    assert (verdict_of(known) is Verdict.PROVED) <= (known.conflicts == 0)


@given(facts, tried)
def test_a_weaker_search_never_says_a_stronger_word(known: Facts, other: Tried) -> None:
    """Whoever tried less does not pass where somebody who tried more does not."""
    weaker = msgspec.structs.replace(known, tried=other)
    if is_whole(known.tried) and not is_whole(other) and known.conflicts:
        assert verdict_of(weaker) is not Verdict.BENIGN


def test_what_was_tried_stands_in_the_verdict() -> None:
    assert verdict_text(Verdict.BENIGN, EACH) == (
        "BENIGN in each of 18 landings of one operation; combinations not tried"
    )
    every = Tried(reach=Reach.COMBINATIONS, number=63, known=63)
    assert verdict_text(Verdict.BENIGN, every) == "BENIGN in each of 63 combinations of landings"
    classes = Tried(reach=Reach.CLASSES, number=1)
    assert (
        verdict_text(Verdict.BENIGN, classes) == "BENIGN in each of 1 class of equivalent schedules"
    )
    some = Tried(reach=Reach.SOME, number=12, known=34)
    assert verdict_text(Verdict.CONFLICT, some) == (
        "CONFLICT; 12 of 34 landings tried, without harm"
    )
    assert verdict_text(Verdict.CONFLICT, BY_HAND) == ("CONFLICT; 1 schedule tried, without harm")
    assert verdict_text(Verdict.CONFLICT, NOTHING_TRIED) == "CONFLICT"
    assert verdict_text(Verdict.PROVED, EACH) == "PROVED"


def test_reaches_are_ordered_from_weak_to_strong() -> None:
    assert [reach for reach in Reach if reach.is_at_least(Reach.EACH_ALONE)] == [
        Reach.EACH_ALONE,
        Reach.COMBINATIONS,
        Reach.CLASSES,
    ]


PAGE = Path(__file__).parents[2] / "docs" / "verdicts.md"


def test_the_page_has_the_table_of_the_rule() -> None:
    rows = [line.strip("| ").split(" | ") for line in PAGE.read_text("utf-8").splitlines()]
    said = [row for row in rows if len(row) == 3 and row[2].isdigit()]
    assert said == [
        [line.when, str(line.verdict), str(int(exit_code([line.verdict])))] for line in RULE
    ]


def test_the_page_prints_what_a_verdict_does() -> None:
    printed = [
        verdict_text(Verdict.CONFLICT, NOTHING_TRIED),
        verdict_text(Verdict.CONFLICT, BY_HAND),
        verdict_text(Verdict.BENIGN, EACH),
        verdict_text(Verdict.BENIGN, Tried(reach=Reach.COMBINATIONS, number=63)),
        verdict_text(Verdict.BENIGN, Tried(reach=Reach.CLASSES, number=12)),
    ]
    text = PAGE.read_text("utf-8")
    assert len(printed) == len(Reach)
    assert all(f"| {one} |" in text for one in printed)
