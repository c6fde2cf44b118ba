"""JSON of one record a line is the same JSON; a changed record is one changed line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from racegate.scenario.untrusted.files import JSON_WIDTH, json_text, write_json

PLAIN = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
)
VALUES = st.recursive(
    PLAIN,
    lambda inner: (
        st.lists(inner, max_size=8) | st.dictionaries(st.text(max_size=9), inner, max_size=8)
    ),
    max_leaves=80,
)


@given(VALUES.filter(lambda value: "\\ud" not in json.dumps(value)))
def test_the_text_is_json_of_the_value(value: Any) -> None:
    assert json.loads(json_text(value)) == value


# Characters that are printed as escapes: short before that, and a line of 300 columns behind it.
@example({"\x8a" * 30: None, "b": {"\U000a8e07" * 12: {"\x96": None}}})
@given(VALUES)
def test_a_line_is_short_or_holds_one_record(value: Any) -> None:
    for line in json_text(value).splitlines():
        if len(line) > JSON_WIDTH + len(",") and line.strip().rstrip(",")[-1] in "}]":
            whole = line.strip().rstrip(",")
            record = json.loads("{" + whole + "}") if whole[0] == '"' else json.loads(whole)
            inner = next(iter(record.values())) if whole[0] == '"' else record
            kept = inner.values() if isinstance(inner, dict) else inner
            assert not any(one and isinstance(one, dict | list) for one in kept)


def test_a_changed_record_is_one_changed_line() -> None:
    rows = [{"name": f"row {at}", "seconds": at / 4, "seen": "x" * 90} for at in range(40)]
    changed = [{**row, "seconds": 9.5} if row["name"] == "row 7" else row for row in rows]
    before, after = (json_text({"rows": each}).splitlines() for each in (rows, changed))
    differing = [at for at, pair in enumerate(zip(before, after, strict=True)) if len({*pair}) > 1]
    assert (len(before), len(differing)) == (44, 1)


def test_what_is_short_is_one_line_and_what_a_terminal_would_act_on_is_an_escape() -> None:
    assert json_text({"a": [1, 2], "b": {}}) == '{"a": [1, 2], "b": {}}\n'
    assert json_text(["\x1b[31m", "\u202e", "é"]) == '["\\u001b[31m", "\\u202e", "é"]\n'


def test_a_file_is_the_text(tmp_path: Path) -> None:
    write_json(tmp_path / "one.json", {"a": (1, 2)})
    assert (tmp_path / "one.json").read_text() == json_text({"a": [1, 2]})
