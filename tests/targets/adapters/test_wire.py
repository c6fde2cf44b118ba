"""The protocol: every message comes back as it was sent, and nothing else is read."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from racegate.check.served import ServedEngine
from racegate.history.observe import Boundary
from racegate.history.trace import HoldOutcome
from racegate.scenario.errors import BadInputError
from racegate.targets.adapters.wire import (
    AccessEntry,
    BufferLine,
    DropEdge,
    HelloQuestion,
    HostLine,
    Line,
    ObservationLine,
    OpLine,
    OwnerLine,
    PlainAnswer,
    PlainQuestion,
    Plant,
    QueryLine,
    Question,
    RanAnswer,
    RecordLine,
    RefusedAnswer,
    RunQuestion,
    StaleValue,
    StopKind,
    StoppedAnswer,
    WaitLine,
    WrongRow,
    decode_line,
    decode_question,
    encode,
    parse_plant,
    plant_text,
)
from scripted_engine import HELLO
from wire_draws import answers, history_lines, plants

DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
EXAMPLES: tuple[Line, ...] = (
    BufferLine(name="x", rows=2),
    OpLine(name="d2h:x@1", lane="copy", accesses=(AccessEntry(buffer="x", rows=(0, (1, 2))),)),
    HostLine(name="host:take@2", accesses=(AccessEntry(buffer="x", write=True),)),
    RecordLine(event="e", lane="copy"),
    WaitLine(edge="landed", event="e"),
    QueryLine(name="host:poll@2", event="e"),
    OwnerLine(name="host:take@2", buffer="x", row=1, meant=("A", 1), found=None),
    ObservationLine(step=1, boundary=Boundary.SAMPLED, values={"count": [1, 2]}),
    RanAnswer(
        to=1,
        delivered={"A": (1,)},
        finished={"A": "stop"},
        steps=3,
        holds=(HoldOutcome(hold="d2h:x@1 until forced", matched=1, realised=0),),
    ),
    StoppedAnswer(to=1, kind=StopKind.CRASH, error="IndexError", message="row 9"),
    PlainAnswer(to=1, tokens={"A": (1,)}),
    RefusedAnswer(to=1, reason="no"),
    ServedEngine().hello(),
)


@given(line=history_lines() | answers())
def test_lines_come_back(line: Line) -> None:
    assert decode_line(encode(line)) == line


@given(plant=plants())
def test_plants_come_back_as_text(plant: Plant) -> None:
    assert parse_plant(plant_text(plant)) == plant


def test_questions_come_back() -> None:
    from racegate.targets.adapters.conformance import KIT

    asked: tuple[Question, ...] = (
        HelloQuestion(id=1, schema="racegate.adapter/1"),
        PlainQuestion(id=2, scenario=KIT),
        RunQuestion(id=3, scenario=KIT, device="cpu", holds=("a until b",), plant=WrongRow()),
        RunQuestion(id=4, scenario=KIT, device="cpu", plant=DropEdge(edge="landed")),
        RunQuestion(id=5, scenario=KIT, device="cpu", plant=StaleValue()),
    )
    for question in asked:
        assert decode_question(encode(question)) == question


@pytest.mark.parametrize("line", EXAMPLES, ids=lambda line: type(line).__name__)
def test_a_line_is_read_strictly(line: Line) -> None:
    """Another field, another type in any field, no tag: refused."""
    fields = msgspec.to_builtins(line)
    assert decode_line(msgspec.json.encode(fields)) == line
    with pytest.raises(msgspec.ValidationError, match="unknown field"):
        decode_line(msgspec.json.encode({**fields, "surprise": 1}))
    for name in fields:
        with pytest.raises(msgspec.ValidationError):
            decode_line(msgspec.json.encode({**fields, name: 1.5}))
    with pytest.raises(msgspec.ValidationError):
        decode_line(msgspec.json.encode({k: v for k, v in fields.items() if k != "is"}))


@given(text=st.binary(max_size=200))
def test_garbage_is_refused(text: bytes) -> None:
    with pytest.raises(DECODE_ERRORS):
        decode_line(b"{" + text)


def test_deep_nesting_is_refused() -> None:
    deep = b'{"is":"observation","step":1,"boundary":"sampled","values":{"x":' + b"[" * 100_000
    with pytest.raises(DECODE_ERRORS):
        decode_line(deep)


def test_an_edge_of_an_introduction_is_read_strictly() -> None:
    edge = {**HELLO["edges"][0], "surprise": 1}
    with pytest.raises(msgspec.ValidationError, match="unknown field"):
        decode_line(msgspec.json.encode({"is": "hello", "to": 1, **HELLO, "edges": [edge]}))


@pytest.mark.parametrize("text", ["", "drop_edge", "drop_edge:", "wrong row", "wrong_row:x"])
def test_a_plant_that_cannot_be_read(text: str) -> None:
    with pytest.raises(BadInputError, match="cannot read the plant"):
        parse_plant(text)
