"""`-k EXPRESSION`: what it selects, and what it says of what it cannot read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from racegate.jobs.selection import (
    OPERATORS,
    SelectionError,
    nearest,
    nothing_selected,
    parse_selection,
)

NAMES = ("align-resume", "graph-align", "graph-park", "offload-save", "stop-token.witness.json")


def selected(expression: str) -> set[str]:
    selects = parse_selection(expression)
    return {name for name in NAMES if selects(name)}


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("align", {"align-resume", "graph-align"}),
        ("ALIGN", {"align-resume", "graph-align"}),
        ("graph-align", {"graph-align"}),
        ("align and graph", {"graph-align"}),
        ("align or graph", {"align-resume", "graph-align", "graph-park"}),
        ("not align", {"graph-park", "offload-save", "stop-token.witness.json"}),
        ("not align and graph", {"graph-park"}),
        ("not (align and graph)", set(NAMES) - {"graph-align"}),
        # `and` binds more tightly than `or`.
        ("offload or align and graph", {"offload-save", "graph-align"}),
        ("(offload or align) and graph", {"graph-align"}),
        ("not not witness.json", {"stop-token.witness.json"}),
        ("nothing-like-it", set()),
    ],
)
def test_what_an_expression_selects(expression: str, names: set[str]) -> None:
    assert selected(expression) == names


@pytest.mark.parametrize(
    ("expression", "place"),
    [
        ("", "the end"),
        ("and align", "'and'"),
        ("align graph", "'graph'"),
        ("(align", "the end"),
        ("align)", r"'\)'"),
        ("align or", "the end"),
        ("not", "the end"),
    ],
)
def test_what_cannot_be_read_is_said_with_its_place(expression: str, place: str) -> None:
    with pytest.raises(SelectionError, match=f"at {place} there should be"):
        parse_selection(expression)


WORDS = st.text("abcdefg-_.", min_size=1, max_size=4).filter(lambda word: word not in OPERATORS)


@given(WORDS, WORDS, st.text("abcdefg-_.", max_size=12))
def test_the_operators_are_those_of_logic(one: str, other: str, name: str) -> None:
    has_one, has_other = one in name, other in name
    assert parse_selection(f"{one} and {other}")(name) == (has_one and has_other)
    assert parse_selection(f"{one} or {other}")(name) == (has_one or has_other)
    assert parse_selection(f"not {one}")(name) is not has_one
    assert parse_selection(f"not ({one} or {other})")(name) == parse_selection(
        f"not {one} and not {other}"
    )(name)


def test_nothing_selected_names_what_is_near() -> None:
    assert nearest(["alinn"], NAMES)[:2] == ["graph-align", "align-resume"]
    error = nothing_selected("offlaod and not align", NAMES)
    assert "selects none of 5" in str(error)
    assert "near it: " in str(error)
    assert "offload-save" in str(error)
