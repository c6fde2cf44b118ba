"""The engine of this repository as an adapter serves it, asked in this process."""

from __future__ import annotations

import dataclasses
import json

import msgspec
import pytest

from racegate.check.checker import Checker
from racegate.check.served import ServedEngine
from racegate.device.protocol import DeadlockError
from racegate.history.trace import HostAccess, OpRecord, rows_of
from racegate.scenario.settings import Numerics
from racegate.targets.adapters.wire import (
    BufferLine,
    HistoryLine,
    ObservationLine,
    PlainAnswer,
    PlainQuestion,
    RanAnswer,
    RefusedAnswer,
    RunQuestion,
    StopKind,
    StoppedAnswer,
)
from support import checker, scenario

FINISH = "finish-and-condense"


def asked(name: str = FINISH, numerics: Numerics = Numerics.EXACT) -> RunQuestion:
    given = scenario(name)
    model = msgspec.structs.replace(given.model, numerics=numerics)
    given = msgspec.structs.replace(given, model=model)
    return RunQuestion(id=7, scenario=given, device="virtual")


def test_a_run_is_told_whole_and_then_answered() -> None:
    lines: list[HistoryLine] = []
    answer = ServedEngine().run(asked(), lines.append)
    run = checker(FINISH).execute()
    assert run.result is not None and isinstance(answer, RanAnswer)
    assert (answer.to, answer.steps, answer.delivered, answer.finished) == (
        0,
        run.result.steps,
        run.result.delivered,
        run.result.finished,
    )
    observed = [line for line in lines if isinstance(line, ObservationLine)]
    assert [(o.step, o.boundary) for o in observed] == [
        (o.step, o.boundary) for o in run.observations
    ]
    for line in observed:
        assert json.loads(json.dumps(line.values)) == line.values, "nothing but what JSON knows"
    rows = {line.storage: line.rows for line in lines if isinstance(line, BufferLine)}
    touched = dict.fromkeys(rows, 1)
    for event in run.trace.events:
        for access in event.accesses if isinstance(event, OpRecord | HostAccess) else ():
            storage = str(access.storage)
            touched[storage] = max(touched[storage], *(1 + row for row in rows_of(access.rows)), 1)
    assert rows == touched


def test_plain_decoding_is_the_references_and_a_scenario_is_looked_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    served = ServedEngine()
    question = PlainQuestion(id=8, scenario=scenario(FINISH))
    first = served.plain(question)
    assert first == PlainAnswer(to=0, tokens=dict(checker(FINISH).plain))
    monkeypatch.setattr("racegate.check.served.Checker", None)
    assert served.plain(question) == first


def test_what_cannot_be_judged_is_refused_and_says_why() -> None:
    unjudged = next(numerics for numerics in Numerics if not numerics.is_judged)
    answer = ServedEngine().run(asked(numerics=unjudged), lambda line: None)
    assert isinstance(answer, RefusedAnswer)
    assert answer.to == 0 and f"numerics {unjudged}" in answer.reason


@pytest.mark.parametrize(
    ("error", "kind"),
    [(DeadlockError("no end"), StopKind.DEADLOCK), (KeyError("no row"), StopKind.CRASH)],
)
def test_a_run_that_stopped_says_what_stopped_it(
    error: Exception, kind: StopKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = dataclasses.replace(checker(FINISH).execute(), result=None, stopped=error)
    monkeypatch.setattr(Checker, "execute", lambda self, **settings: stopped)
    answer = ServedEngine().run(asked(), lambda line: None)
    assert answer == StoppedAnswer(to=0, kind=kind, error=type(error).__name__, message=str(error))
