"""Attention over the common prefix of a batch: what it changes, and where it gives way."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from racegate.check.checker import Checker
from racegate.engine.model.cascade import common_tokens
from racegate.engine.state.plan import PlanEntry
from racegate.history.schedule import LATE
from racegate.scenario.expect import Expect
from racegate.scenario.settings import (
    CacheMode,
    Cascade,
    DrafterKind,
    GraphMode,
    Numerics,
    Planning,
)
from racegate.scenario.spec import OwnScenario
from support import checker, scenario


def entry(blocks: tuple[int, ...], computed: int) -> PlanEntry:
    return PlanEntry(
        request="A",
        incarnation=0,
        tokens=1,
        drafts=0,
        computed=computed,
        prefill_len=1,
        blocks=blocks,
        state_blocks=(),
        known_tokens=None,
    )


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([((1, 2, 3), 12)], 12),
        ([((1, 2, 3), 11)], 8),
        ([((1, 2, 3), 12), ((1, 2, 4), 12)], 8),
        ([((1, 2, 3), 12), ((1, 2, 3, 4), 15), ((1, 2), 8)], 8),
        ([((1, 2, 3), 12), ((1, 2, 3), 3)], 0),
        ([((1, 2), 8), ((3, 2), 8)], 0),
        ([((1, 2), 8), ((), 0)], 0),
    ],
)
def test_a_common_prefix_is_shared_and_computed(
    rows: list[tuple[tuple[int, ...], int]], expected: int
) -> None:
    assert common_tokens([entry(*row) for row in rows], block_size=4) == expected


@pytest.mark.parametrize(
    ("numerics", "engine"),
    [
        (Numerics.FLOAT32, {"drafter": DrafterKind.MTP}),
        (Numerics.EXACT, {"graph_mode": GraphMode.PIECEWISE, "planning": Planning.SIDE_STREAM}),
        (Numerics.EXACT, {"cache_mode": CacheMode.OFFLOAD, "state_interval": 4}),
    ],
    ids=["float-mtp", "pieces", "offload"],
)
def test_beside_everything_else(numerics: Numerics, engine: dict[str, Any]) -> None:
    of = scenario("cascade-synchronous")
    turned: OwnScenario = msgspec.structs.replace(
        of,
        model=msgspec.structs.replace(of.model, numerics=numerics),
        engine=msgspec.structs.replace(of.engine, **engine),
        expect=Expect(),
    )
    result = Checker(turned).run(schedule=LATE)
    assert result.findings == ()
    # Offloaded prefixes are loaded into blocks of their own: rows share none.
    is_shared = turned.engine.cache_mode.publishes
    assert (result.stats.exercised["cascade_steps"] > 0) == is_shared


def test_it_changes_nothing_that_is_delivered() -> None:
    of = scenario("cascade-prefix-hits")
    plain = msgspec.structs.replace(
        of, engine=msgspec.structs.replace(of.engine, cascade=Cascade.OFF), expect=Expect()
    )
    delivered = [Checker(script).execute().result for script in (of, plain)]
    assert delivered[0] is not None and delivered[1] is not None
    assert delivered[0].delivered == delivered[1].delivered


def test_every_result_says_that_it_gave_way() -> None:
    result = checker("cascade-excluded").run()
    assert result.config["engine"]["cascade"] == "off"
    (change,) = result.resolved
    assert (change.option, change.asked, change.effective) == ("cascade", "on", "off")
    assert result.warnings == (change.text,)
    assert "cascade_steps" in result.stats.exercised
    assert result.stats.exercised["cascade_steps"] == 0
    # Who asked keeps the scenario: a witness of it says so again.
    assert scenario("cascade-excluded").engine.has_cascade
