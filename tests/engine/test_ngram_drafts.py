"""N-gram drafts in the engine, beside everything that moves states, caches and rows."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from racegate.check.checker import Checker
from racegate.history.schedule import LATE
from racegate.scenario.expect import Expect
from racegate.scenario.settings import CacheMode, GraphMode
from racegate.scenario.spec import Preempt
from support import scenario


@pytest.mark.parametrize(
    "engine",
    [
        {"cache_mode": CacheMode.OFFLOAD, "depth": 3},
        {"cache_mode": CacheMode.ALIGN, "graph_mode": GraphMode.FULL_DECODE, "draft_len_max": 2},
    ],
    ids=["offload", "align-graphs"],
)
def test_beside_everything_else(engine: dict[str, Any]) -> None:
    of = scenario("ngram-drafts")
    turned = msgspec.structs.replace(
        of,
        engine=msgspec.structs.replace(of.engine, **engine),
        expect=Expect(),
        events=(Preempt(step=6, request="A"),),
    )
    result = Checker(turned).run(schedule=LATE)
    assert result.findings == ()
    assert result.stats.exercised["missing_drafts"] > 0
    assert result.stats.exercised["preemptions"] > 0
