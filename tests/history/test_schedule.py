"""Holds and schedules: the text form round-trips; what cannot be read is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from racegate.history.schedule import (
    HOLD_LENGTH_MAX,
    HOLDS_MAX,
    Half,
    Hold,
    Schedule,
    ScheduleError,
    fewest,
    parse_hold,
    parse_holds,
    parse_schedule,
    texts_of,
)

names = st.from_regex(r"\A[a-z0-9_.*/]{1,8}:[a-z0-9_.]{1,12}@[0-9]{1,3}\Z")
holds = st.builds(Hold, op=names, until=names, row_first=st.none() | st.integers(0, 999))


@given(holds)
def test_a_hold_round_trips_through_its_text(hold: Hold) -> None:
    assert parse_hold(hold.text()) == hold


@given(st.lists(holds, max_size=5))
def test_a_schedule_round_trips_through_its_texts(items: list[Hold]) -> None:
    schedule = Schedule(holds=tuple(items))
    assert parse_schedule(schedule.texts()) == schedule


def test_the_example_of_the_design() -> None:
    hold = parse_hold("d2h:accepted_counts@3 until host:condense@4")
    assert hold == Hold(op="d2h:accepted_counts@3", until="host:condense@4")


def test_a_torn_copy_names_its_first_held_row() -> None:
    assert parse_hold("d2h:sampled@3[2:] until forced").row_first == 2


@pytest.mark.parametrize(
    "text",
    [
        "",
        "until host:y@2",
        "d2h:x@1 until",
        "d2h:x@1 before y",
        "a b until c",
        "x[1] until y",
    ],
)
def test_an_unreadable_hold_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ScheduleError, match="OP until POINT"):
        parse_schedule([text])


# What three parsers read in three ways: one of them as a hold, one with a part of the operation as
# the point, one not at all.
ODD = (
    "",
    "until host:y@2",
    "d2h:x@1 until",
    " until forced",
    "a until b until c",
    "d2h x@\x1b[0m until forced",
    "rest of until forced",
)


@pytest.mark.parametrize("text", ODD)
def test_an_odd_hold_is_refused_in_the_same_words_by_every_target(text: str) -> None:
    said = set()
    for read in (parse_hold, lambda text: parse_holds([text])):
        with pytest.raises(ScheduleError) as caught:
            read(text)
        said.add(str(caught.value))
    assert len(said) == 1


@pytest.mark.parametrize(
    ("text", "hold"),
    [
        ("d2h:x@1", Hold(op="d2h:x@1")),
        ("  d2h  counts@step#1  until forced ", Hold(op="d2h counts@step#1")),
        ("rest of h2d@a.py:f#2", Hold(op="h2d@a.py:f#2", half=Half.REST)),
        (
            "start of d2h@a.py:<lambda>#1 until x",
            Hold(op="d2h@a.py:<lambda>#1", until="x", half=Half.START),
        ),
        (
            "h2d self.pool[0]@f#1 until host read pool[0]@g#2",
            Hold(op="h2d self.pool[0]@f#1", until="host read pool[0]@g#2"),
        ),
        ("everything", Hold(op="everything")),
        ("d2h*[2:] until h", Hold(op="d2h*", until="h", row_first=2)),
    ],
)
def test_one_grammar_reads_the_holds_of_every_target(text: str, hold: Hold) -> None:
    assert parse_hold(text) == hold == parse_hold(hold.text())
    holds = parse_holds([text])
    assert (holds, texts_of(holds)) == ((hold,), (hold.text(),))


def test_forced_is_written_in_one_place() -> None:
    sources = (Path(__file__).parents[2] / "harness").rglob("*.py")
    places = [path for path in sources if '"forced"' in path.read_text(encoding="utf-8")]
    assert [path.name for path in places] == ["schedule.py"]


def test_too_many_holds_are_refused() -> None:
    with pytest.raises(ScheduleError, match=str(HOLDS_MAX)):
        parse_schedule(["a until b"] * (HOLDS_MAX + 1))


def test_the_bounds_are_what_they_are_to_the_last_one() -> None:
    hold = "d2h:a@1 until forced"
    assert len(parse_schedule([hold] * HOLDS_MAX).holds) == HOLDS_MAX == 256
    with pytest.raises(ScheduleError, match=f"{HOLDS_MAX + 1} holds, at most {HOLDS_MAX}"):
        parse_schedule([hold] * (HOLDS_MAX + 1))
    padded = hold.replace(" until", " " * (HOLD_LENGTH_MAX - len(hold)) + " until")
    assert len(padded) == HOLD_LENGTH_MAX and parse_hold(padded) == parse_hold(hold)
    with pytest.raises(ScheduleError, match="cannot read the hold"):
        parse_hold(f"{padded} ")


def named(count: int) -> tuple[Hold, ...]:
    return tuple(Hold(op=f"kernel:k{place}@0", until="host:end@1") for place in range(count))


@given(st.sets(st.integers(0, 11)), st.integers(0, 12))
def test_the_fewest_holds_are_those_that_are_needed(needed: set[int], count: int) -> None:
    asked: list[int] = []
    wanted = {hold for place, hold in enumerate(named(count)) if place in needed}

    def fails(few: tuple[Hold, ...]) -> bool:
        asked.append(len(few))
        return wanted <= set(few)

    found, is_fewest = fewest(named(count), fails)
    assert set(found) == wanted and is_fewest
    assert asked[:1] == ([count - max(1, count // 2)] if count else []), "half of them come first"


def test_one_of_many_is_found_by_halves_and_what_is_not_tried_is_said() -> None:
    asked: list[tuple[Hold, ...]] = []
    many = named(64)

    def fails(few: tuple[Hold, ...]) -> bool | None:
        asked.append(few)
        return None if len(asked) > 20 else many[-1] in few

    assert fewest(many, fails) == (many[-1:], True)
    assert len(asked) < 20
    asked.clear()
    assert fewest(many, lambda few: None) == (many, False)
