"""How, not what: settings of the asynchronous engine that change nothing here."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings

from racegate.history.observe import Boundary
from racegate.scenario.settings import GraphMode, Planning, TransferMode, Zeroing
from racegate.scenario.spec import OwnScenario
from racegate_reference.engine import run_reference
from reference_runs import assert_same, observed
from reference_scenarios import request, scenario, scenarios

PLAIN: dict[str, Any] = {
    "graph_mode": GraphMode.EAGER,
    "capture_rows": (1, 2, 4, 8),
    "zeroing": Zeroing.NONE,
    "planning": Planning.INLINE,
    "transfers": TransferMode.STREAMS,
}
OTHERS: tuple[tuple[str, Any], ...] = (
    ("graph_mode", GraphMode.FULL_DECODE),
    ("capture_rows", (3,)),
    ("zeroing", Zeroing.FRESH),
    ("planning", Planning.SIDE_STREAM),
    ("transfers", TransferMode.NIC),
)


def configured(of: OwnScenario, **engine: Any) -> OwnScenario:
    """The scenario with some fields of its engine replaced."""
    return msgspec.structs.replace(of, engine=msgspec.structs.replace(of.engine, **engine))


@pytest.mark.parametrize(("name", "value"), OTHERS)
@given(of=scenarios())
@settings(max_examples=25)
def test_nothing_observed_depends_on_them(of: OwnScenario, name: str, value: Any) -> None:
    plain = run_reference(configured(of, **PLAIN))
    other = run_reference(configured(of, **{**PLAIN, name: value}))
    assert_same(plain, other, besides={"fresh_dirty"})
    assert (plain.delivered, plain.steps) == (other.delivered, other.steps)


def test_fresh_blocks_are_clean_in_every_step() -> None:
    of = scenario(request("A", max_tokens=3), request("B", arrive=1, max_tokens=3))
    assert all(
        "fresh_dirty" not in values
        for values in observed(run_reference(of), Boundary.INPUTS).values()
    )
    fresh = run_reference(configured(of, zeroing=Zeroing.FRESH))
    rows = observed(fresh, Boundary.PREPARED)
    dirty = observed(fresh, Boundary.INPUTS)
    assert [dirty[step]["fresh_dirty"].tolist() for step in (0, 1)] == [[0], [0, 0]]
    for step, values in dirty.items():
        assert values["fresh_dirty"].dtype == values["accepted"].dtype
        assert values["fresh_dirty"].tolist() == [0] * len(rows[step]["rows"])
