"""Adapters that lie, in every way that the protocol's types allow: none is PROVED or BENIGN."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from lies import all_lies
from racegate.history.finding import Verdict
from racegate.scenario.expect import Expect
from racegate.scenario.spec import OwnScenario, Request
from racegate.targets.adapters import client
from racegate.targets.adapters.client import Adapter
from racegate.targets.adapters.conformance import CheckOutcome, conform
from racegate.targets.adapters.errors import AdapterError
from racegate.targets.adapters.judge import AdapterJudge
from racegate.targets.adapters.wire import (
    SCHEMA,
    DropEdge,
    HelloQuestion,
    Line,
    PlainQuestion,
    Question,
    RunQuestion,
)
from ring_engine import EDGES, RingEngine
from spoken import Lie, Lines, honest, speaking, spoken

ENGINE = RingEngine()
# Small, since the kit is run for every lie.
KIT = OwnScenario(
    name="small",
    title="counts differ from row to row and from step to step, and one request comes later",
    requests=(
        Request(name="A", arrive=0, prompt=(7, 11), max_tokens=5, accepts=(2, 1)),
        Request(name="B", arrive=0, prompt=(3, 1, 9), max_tokens=4, accepts=(1, 3)),
        Request(name="C", arrive=1, prompt=(5, 8), max_tokens=5, accepts=(3, 1)),
    ),
)
JUDGED = msgspec.structs.replace(KIT, name="judged", expect=Expect(rejections=1))
HELD = ("d2h:out@0 until forced",)
ASKED: tuple[Question, ...] = (
    HelloQuestion(id=1, schema=SCHEMA),
    PlainQuestion(id=2, scenario=KIT),
    RunQuestion(id=3, scenario=KIT, device="cpu", holds=HELD),
)
LIES_MIN = 200

# What says nothing false of the run, or nothing that can be known to be false; and why.
NO_LIES = {
    "buffer backwards": "which buffer is announced first says nothing",
    "buffer swapped": "which buffer is announced first says nothing",
    "host doubled": "the host may read twice",
    "wait doubled": "the second wait has nothing to wait for",
    "record doubled": "the second record covers what the first one does",
    "owner doubled": "it is said twice, and is so",
    "wait.lane dropped": "the host does nothing before it waits by itself",
    "observation early": "an observation belongs to its step, wherever it is said",
    "observation swapped": "an observation belongs to its step, wherever it is said",
    "hello.engine out of range": "its name",
    "hello.engine doubled": "its name",
    "hello.version out of range": "its version",
    "hello.version doubled": "its version",
    "op the last one dropped": "that operations are told is assumed, and printed with PROVED",
    "observation the last one dropped": "a step at the end in which nothing is observed",
    "observation.values negative": "its own data; the plants change them as they have to",
    "observation.values of the next line": "its own data; the plants change them as they have to",
    "observation of another scenario": "its own data; the plants change them as they have to",
}


def meant(lines: Lines) -> list[object]:
    """What lines say, whatever they leave out because it is usual."""
    try:
        return [msgspec.convert(line, Line) for line in lines]  # type: ignore[arg-type]
    except msgspec.ValidationError:
        return list(lines)


def is_told(lie: Lie) -> bool:
    """Whether anything is not as an honest engine says it."""
    return any(meant(lie(spoken(ENGINE, ask), ask)) != meant(spoken(ENGINE, ask)) for ask in ASKED)


def believed(lie: Lie, monkeypatch: pytest.MonkeyPatch) -> Iterator[Verdict]:
    """Verdicts on an adapter that the kit has nothing against: without a plant, and with a race."""
    monkeypatch.setattr(client, "EngineProcess", speaking(ENGINE, lie))
    with Adapter([]) as adapter:
        if any(check.outcome is CheckOutcome.FAILED for check in conform(adapter, scenario=KIT)):
            return
        judge = AdapterJudge(adapter, JUDGED)
        yield judge.judge().verdict
        yield judge.judge(plant=DropEdge(edge="drained")).verdict


def test_no_lie_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    passed, told = [], 0
    for name, lie in all_lies(ENGINE):
        if not is_told(lie):
            continue
        told += 1
        try:
            if {Verdict.PROVED, Verdict.BENIGN} & set(believed(lie, monkeypatch)):
                passed.append(name)
        except AdapterError:
            continue
    assert sorted(passed) == sorted(NO_LIES)
    assert told - len(passed) >= LIES_MIN


def test_the_honest_engine_passes_and_the_edge_of_each_pair_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two edges are for one buffer, and say nothing more of their sides."""
    assert next(believed(honest, monkeypatch)) is Verdict.PROVED
    with Adapter([]) as adapter:
        assert [c for c in conform(adapter) if c.outcome is not CheckOutcome.PASSED] == []
        judge = AdapterJudge(adapter, JUDGED)
        for edge in EDGES:
            found = judge.judge(plant=DropEdge(edge=edge.name))
            assert found.verdict is Verdict.DIVERGENT
            assert found.findings[0].edge == edge.name
