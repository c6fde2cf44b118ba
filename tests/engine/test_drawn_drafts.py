"""Drawn drafts in the engine: beside everything else that there is, and where they mean less."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from racegate.check.checker import Checker
from racegate.history.schedule import LATE
from racegate.scenario.config import resolve
from racegate.scenario.expect import Expect
from racegate.scenario.settings import CacheMode, DrafterKind, DraftSampling, GraphMode, Numerics
from racegate.scenario.spec import OwnScenario, Preempt, ScenarioError
from racegate.scenario.validation import validate
from support import scenario

NAME = "drawn-drafts"
GRAPHS = {"graph_mode": GraphMode.FULL_DECODE}


def turned(*, engine: dict[str, Any], **changes: Any) -> OwnScenario:
    of = scenario(NAME)
    other = msgspec.structs.replace(of.engine, **engine)
    return msgspec.structs.replace(of, engine=other, expect=Expect(), **changes)


def of_temperature(temperature: float, *, modulus: int = 0) -> OwnScenario:
    return turned(
        engine={},
        requests=tuple(
            msgspec.structs.replace(request, temperature=temperature, grammar_modulus=modulus)
            for request in scenario(NAME).requests
        ),
    )


@pytest.mark.parametrize(
    "of",
    [
        turned(engine={"depth": 4, "draft_len_max": 1}),
        turned(engine={"cache_mode": CacheMode.ALIGN, "depth": 1}),
        turned(engine=GRAPHS, events=(Preempt(step=5, request="B"),)),
        of_temperature(9.0, modulus=5),
    ],
    ids=["depth", "align", "graphs-preempted", "grammar"],
)
def test_beside_everything_else(of: OwnScenario) -> None:
    result = Checker(of).run(schedule=LATE)
    assert result.findings == ()
    assert result.stats.exercised["drawn_drafts"] > 0


def test_in_float32() -> None:
    of = scenario(NAME)
    model = msgspec.structs.replace(of.model, numerics=Numerics.FLOAT32)
    assert Checker(turned(engine={}, model=model)).run().findings == ()


def test_greedy_requests_deliver_what_plain_decoding_gives() -> None:
    drawn = Checker(of_temperature(0.0)).execute().result
    greedy = turned(
        engine={"draft_sampling": DraftSampling.GREEDY}, requests=of_temperature(0.0).requests
    )
    plain = Checker(greedy).execute().result
    assert drawn is not None and plain is not None
    assert drawn.delivered == plain.delivered


def test_other_drafters_draw_nothing() -> None:
    resolved = resolve(turned(engine={"drafter": DrafterKind.SCRIPTED}))
    assert resolved.scenario.engine.draft_sampling is DraftSampling.GREEDY
    assert "draws nothing" in resolved.changes[0].text


def test_a_vocabulary_whose_products_do_not_fit_is_refused() -> None:
    model = msgspec.structs.replace(scenario(NAME).model, vocab_size=129)
    with pytest.raises(ScenarioError, match="at most 128 with draft_sampling random"):
        validate(turned(engine={}, model=model))
