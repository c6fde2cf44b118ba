"""The invariants oracle: every predicate holds in right runs and sees the damage it is there for.

A damage changes one thing in an observation of a right run. It is made to the first observation of
its boundary to which it can be made.
"""

from __future__ import annotations

import copy
from functools import cache

import msgspec
import pytest

from damages import (
    Damage,
    NotHereError,
    Seen,
    backup_token,
    behind_its_blocks,
    behind_the_last_row,
    drawn_without_weight,
    far_positions,
    held_and_free,
    holder_lost,
    hole_in_sample,
    in_slots,
    longer_prefix,
    more_than_drafted,
    optimistic_coordinate,
    other_first_block,
    other_row,
    plan_entry,
    plus,
    previous,
    previous_discarded,
    published_without_align,
    put,
    regions,
    rows_twice,
    sampled,
    shared_block,
    short_state_table,
    short_table,
    starts_elsewhere,
    too_far_ahead,
    uncounted,
    waits_with,
    window_twice,
    writes_full_block,
)
from racegate.faults.catalogue import find_fault
from racegate.history.observe import Boundary, Observation
from racegate.oracles.invariants import PREDICATES, find_violations
from racegate.scenario.spec import OwnScenario
from support import checker

SCENARIOS = (
    "steady-mixed-accepts",
    "chunked-prefill-backup-token",
    "align-boundary-and-prefix-hit",
    "drawn-drafts",
    "mrope-text",
    "slots-steady",
    "all-steady",
    "cascade-synchronous",
    "length-limit",
    "mrope-image",
)


SCHEDULED: list[tuple[str, Damage]] = [
    ("I-01", lambda seen: seen.count(placeholders=seen.first("promised") + 1)),
    ("I-01", lambda seen: seen.count(placeholders=-1)),
    ("I-02", lambda seen: seen.count("promised", tokens=1, prefill_len=0)),
    ("I-03", lambda seen: seen.count(computed=seen.scenario.engine.model_len_max)),
    ("I-03", lambda seen: seen.count(tokens=seen.scenario.engine.model_len_max + 1)),
    ("I-03", lambda seen: seen.count(delivered=seen.first("max_tokens") + 1)),
    ("I-04", lambda seen: plan_entry(seen, tokens=9, drafts=seen.k + 1, is_decode=True)),
    ("I-04", lambda seen: plan_entry(seen, tokens=1, drafts=1, is_decode=True)),
    ("I-04", lambda seen: plan_entry(seen, tokens=2, drafts=1, is_decode=False)),
    ("I-05", waits_with(computed=1)),
    ("I-05", waits_with(blocks=(1,))),
    ("I-05", waits_with(state_blocks=(1,))),
    ("I-05", waits_with(drafts_next=1)),
    ("I-10", shared_block("blocks")),
    ("I-10", shared_block("state_blocks")),
    ("I-10", held_and_free("blocks")),
    ("I-10", held_and_free("state_blocks")),
    ("I-10", holder_lost("blocks")),
    ("I-10", holder_lost("state_blocks")),
    ("I-10", published_without_align("blocks")),
    ("I-10", published_without_align("state_blocks")),
    ("I-11", short_table),
    ("I-43", short_state_table),
    (
        "I-65",
        lambda seen: seen.detail.update(frames_in_flight=seen.scenario.engine.depth + 1),
    ),
]
PREPARED: list[tuple[str, Damage]] = [
    ("I-20", rows_twice),
    ("I-20", other_row),
    ("I-21", put("detail", "block_table", (0, 0), plus(1))),
    ("I-21", put("detail", "state_table", (0, 0), plus(1))),
    ("I-21", behind_its_blocks("block_table", "blocks")),
    ("I-21", behind_its_blocks("state_table", "state_blocks")),
    ("I-21", behind_the_last_row("block_table")),
    ("I-21", behind_the_last_row("state_table")),
    ("I-22", previous(0, 0)),
    ("I-22", previous(1, 0)),
    ("I-22", previous_discarded),
    ("I-24", regions),
    ("I-26", in_slots(lambda slots: (slots[0],) * len(slots))),
    ("I-26", in_slots(lambda slots: (0, *slots[1:]))),
    ("I-25", put("values", "discarded", 0, lambda old: not old)),
]
INPUTS: list[tuple[str, Damage]] = [
    ("I-31", too_far_ahead),
    ("I-31", put("detail", "computed_host", 0, plus(99))),
    ("I-31", put("detail", "computed_host", 0, lambda old: -1)),
    ("I-32", put("values", "seq_lens", 0, plus(1))),
    ("I-32", put("values", "positions", 0, plus(1))),
    ("I-32", far_positions),
    ("I-33", put("values", "query_start", 0, 1)),
    ("I-33", put("values", "query_start", -1, plus(1))),
    ("I-33", put("values", "query_start", -1, -1)),
    ("I-34", put("values", "slot_mapping", slice(0, 2), 50)),
    ("I-34", put("values", "slot_mapping", 0, 1)),
    ("I-35", put("values", "input_ids", 0, -1)),
    ("I-35", put("values", "input_ids", 0, 1 << 20)),
    ("I-36", put("values", "accepted", 0, 0)),
    ("I-36", put("values", "accepted", 0, 10)),
    ("I-38", put("detail", "windows", (0, 0), 0)),
    ("I-38", window_twice),
    ("I-40", optimistic_coordinate),
    ("I-41", writes_full_block),
    ("I-44", longer_prefix(by=1)),
    ("I-44", longer_prefix(by=96)),
    ("I-44", other_first_block),
    ("I-42", starts_elsewhere(on_boundary=True)),
    ("I-42", starts_elsewhere(on_boundary=False)),
]
SAMPLED: list[tuple[str, Damage]] = [
    ("I-50", sampled()),
    ("I-50", sampled(-1, 5)),
    ("I-50", hole_in_sample),
    ("I-50", more_than_drafted),
    ("I-51", uncounted),
    ("I-52", put("values", "next_token", 0, plus(1))),
    ("I-52", backup_token),
    ("I-57", drawn_without_weight),
]
PROCESSED: list[tuple[str, Damage]] = [
    ("I-01", lambda seen: seen.count(placeholders=seen.first("promised") + 1)),
    ("I-02", lambda seen: seen.count("promised", tokens=1, prefill_len=0)),
    ("I-03", lambda seen: seen.count(computed=seen.scenario.engine.model_len_max)),
    ("I-05", waits_with(computed=1)),
    ("I-07", lambda seen: seen.count(in_flight=0, computed=seen.first("settled") + 1)),
    ("I-07", lambda seen: seen.count(in_flight=0, computed=0, settled=0, placeholders=1)),
    ("I-10", held_and_free("blocks")),
]
DAMAGES = [
    (boundary, invariant, damage)
    for boundary, damages in zip(
        Boundary, (SCHEDULED, PREPARED, INPUTS, SAMPLED, PROCESSED), strict=True
    )
    for invariant, damage in damages
]


@cache
def observations() -> list[tuple[OwnScenario, Observation]]:
    """Those of right runs."""
    return [
        (checker(name).scenario, observation)
        for name in SCENARIOS
        for observation in checker(name).execute().observations
    ]


def damaged(boundary: Boundary, damage: Damage) -> tuple[OwnScenario, Observation]:
    """The first observation of the boundary that can be damaged so."""
    for scenario, observation in observations():
        if observation.boundary is boundary:
            values, detail = copy.deepcopy((dict(observation.values), dict(observation.detail)))
            seen = Seen(values, detail, scenario)
            try:
                damage(seen)
            except NotHereError:
                continue
            return scenario, msgspec.structs.replace(
                observation, values=seen.values, detail=seen.detail
            )
    raise AssertionError("no observation has what is to be damaged")


@pytest.mark.parametrize(
    ("boundary", "invariant", "damage"),
    DAMAGES,
    ids=[f"{boundary}-{name}-{number}" for number, (boundary, name, _) in enumerate(DAMAGES)],
)
def test_a_predicate_sees_the_damage_it_is_there_for(
    boundary: Boundary, invariant: str, damage: Damage
) -> None:
    scenario, observation = damaged(boundary, damage)
    violations = find_violations([observation], scenario)
    assert invariant in {violation.invariant for violation in violations}
    for violation in violations:
        assert (violation.step, violation.boundary) == (observation.step, boundary)
        assert violation.message


def test_every_predicate_is_damaged_at_every_boundary() -> None:
    asked = {(boundary, name) for boundary, name, _ in DAMAGES}
    assert asked == {(boundary, name) for boundary, known in PREDICATES.items() for name in known}


def test_right_observations_violate_nothing() -> None:
    for scenario, observation in observations():
        assert find_violations([observation], scenario) == []


def test_violations_come_in_the_order_of_the_run() -> None:
    scenario, first = damaged(Boundary.PREPARED, other_row)
    _, second = damaged(Boundary.SAMPLED, put("values", "next_token", 0, plus(1)))
    found = [v.invariant for v in find_violations([first, second], scenario)]
    assert found == ["I-20", "I-52"]


def test_a_violation_names_the_request_that_it_concerns() -> None:
    scenario, observation = damaged(Boundary.INPUTS, put("values", "accepted", 0, 0))
    (violation,) = find_violations([observation], scenario)
    assert violation.request == observation.detail["rows"][0]
    assert violation.message == "accepted count 0"


def test_they_need_no_reference() -> None:
    run = checker("steady-mixed-accepts").execute(fault=find_fault("correction-partial-fields"))
    violations = find_violations(run.observations, checker("steady-mixed-accepts").scenario)
    assert "I-32" in {violation.invariant for violation in violations}


def test_every_boundary_is_looked_at_in_the_gate() -> None:
    boundaries = {o.boundary for o in checker("steady-mixed-accepts").execute().observations}
    assert boundaries == set(PREDICATES)
