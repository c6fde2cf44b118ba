"""The invariants oracle: every predicate holds in right runs and sees the damage it is there for.

A damage changes one thing in an observation of a right run. It is made to the first observation of
its boundary to which it can be made.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec
import numpy as np
import pytest

from racegate.faults.catalogue import find_fault
from racegate.history.observe import Boundary, Observation
from racegate.oracles.invariants import PREDICATES, find_violations
from racegate.scenario.spec import Scenario
from support import checker

SCENARIOS = (
    "steady-mixed-accepts",
    "chunked-prefill-backup-token",
    "align-boundary-and-prefix-hit",
)


@dataclass
class Seen:
    """An observation to be damaged."""

    values: dict[str, Any]
    detail: dict[str, Any]
    scenario: Scenario

    @property
    def k(self) -> int:
        return self.scenario.engine.draft_len_max

    def need(self, condition: object) -> None:
        """Where this is not given, another observation is taken."""
        if not condition:
            raise NotHereError

    def count(self, needed: str = "is_running", **changes: object) -> None:
        """Other counters for the first request of which something is true."""
        counters = self.detail["counters"]
        found = [name for name, c in counters.items() if getattr(c, needed)]
        self.need(found)
        self.detail["counters"] = counters | {
            found[0]: msgspec.structs.replace(counters[found[0]], **changes)
        }

    def first(self, what: str) -> Any:
        """What the first running request has of something."""
        running = [c for c in self.detail["counters"].values() if c.is_running]
        self.need(running)
        return getattr(running[0], what)

    def pool(self, pool: str, **changes: object) -> None:
        self.detail[pool] = msgspec.structs.replace(self.detail[pool], **changes)


class NotHereError(Exception):
    """An observation without what is to be damaged."""


Damage = Callable[[Seen], None]


def plan_entry(seen: Seen, *, tokens: int, drafts: int, is_decode: bool) -> None:
    seen.need(seen.values["plan"])
    name = seen.values["plan"][0][0]
    seen.values["plan"] = ((name, tokens, drafts), *seen.values["plan"][1:])
    seen.detail["is_decode"][name] = is_decode


def waits_with(**left: object) -> Damage:
    """A request that waits and still has something."""
    nothing = {"computed": 0, "blocks": (), "state_blocks": (), "drafts_next": 0}
    return lambda seen: seen.count(is_running=False, is_waiting=True, **{**nothing, **left})


def shared_block(pool: str) -> Damage:
    """Two tables name a block that is counted twice and was not published."""

    def damage(seen: Seen) -> None:
        names = [n for n, c in seen.detail["counters"].items() if getattr(c, pool)]
        seen.need(len(names) > 1)
        one, other = (seen.detail["counters"][name] for name in names[:2])
        blocks = getattr(one, pool)
        both = (blocks[0], *getattr(other, pool)[1:])
        lost = getattr(other, pool)[0]
        changed = msgspec.structs.replace(other, **{pool: both})
        seen.detail["counters"] = seen.detail["counters"] | {names[1]: changed}
        holders = list(seen.detail[f"{pool}_pool"].holder_counts)
        holders[blocks[0]] += 1
        holders[lost] -= 1
        seen.pool(f"{pool}_pool", holder_counts=tuple(holders), published=frozenset())

    return damage


def held_and_free(pool: str) -> Damage:
    def damage(seen: Seen) -> None:
        seen.need(seen.first(pool))
        block = seen.first(pool)[0]
        seen.pool(f"{pool}_pool", free=seen.detail[f"{pool}_pool"].free | {block})

    return damage


def holder_lost(pool: str) -> Damage:
    def damage(seen: Seen) -> None:
        seen.need(seen.first(pool))
        holders = list(seen.detail[f"{pool}_pool"].holder_counts)
        holders[seen.first(pool)[0]] -= 1
        seen.pool(f"{pool}_pool", holder_counts=tuple(holders))

    return damage


def short_table(seen: Seen) -> None:
    seen.need(seen.values["plan"])
    name = seen.values["plan"][0][0]
    seen.values["block_table"] = seen.values["block_table"] | {name: ()}


def put(where: str, name: str, index: Any, value: Any) -> Damage:
    """Another value at one place; value: the value, or what makes it of the old one."""

    def damage(seen: Seen) -> None:
        array = np.array(getattr(seen, where)[name])
        seen.need(array.size)
        array[index] = value(array[index]) if callable(value) else value
        getattr(seen, where)[name] = array

    return damage


def rows_twice(seen: Seen) -> None:
    seen.need(seen.values["rows"])
    seen.values["rows"] = (*seen.values["rows"][:1], *seen.values["rows"])[
        : len(seen.values["rows"])
    ]
    seen.need(len(set(seen.values["rows"])) < len(seen.values["rows"]))


def other_row(seen: Seen) -> None:
    seen.need(seen.values["rows"])
    seen.detail["row_of"] = {name: row + 1 for name, row in seen.detail["row_of"].items()}


def behind_its_blocks(table: str, blocks: str) -> Damage:
    def damage(seen: Seen) -> None:
        seen.need(seen.values["rows"])
        known = seen.detail[blocks][seen.values["rows"][0]]
        seen.need(len(known) < seen.detail[table].shape[1])
        seen.detail[table][0, len(known)] = 1

    return damage


def behind_the_last_row(table: str) -> Damage:
    def damage(seen: Seen) -> None:
        seen.need(len(seen.values["rows"]) < len(seen.detail[table]))
        seen.detail[table][len(seen.values["rows"]), 0] = 1

    return damage


def previous(*rows: int) -> Damage:
    """prev_positions of the first rows, where as many stood before."""

    def damage(seen: Seen) -> None:
        now = np.array(seen.detail["prev_positions"])
        seen.need(len(now) >= len(rows) and len(seen.detail["prev_rows"]) >= len(rows))
        seen.need((now[: len(rows)] >= 0).all())
        now[: len(rows)] = rows
        seen.detail["prev_positions"] = now

    return damage


def previous_discarded(seen: Seen) -> None:
    now = np.array(seen.detail["prev_positions"])
    seen.need((now >= 0).any())
    discarded = np.array(seen.detail["prev_discarded"])
    discarded[now[now >= 0][0]] = True
    seen.detail["prev_discarded"] = discarded


def regions(seen: Seen) -> None:
    seen.need(len(seen.values["rows"]) > 1)
    seen.detail["regions"] = [1, *[0] * (len(seen.values["rows"]) - 1)]


def far_positions(seen: Seen) -> None:
    """A row that stands, consistently, behind the longest sequence there may be."""
    starts, longest = seen.values["query_start"], seen.scenario.engine.model_len_max
    seen.need(len(starts) > 1)
    count = int(starts[1] - starts[0])
    for name in ("computed", "seq_lens"):
        array = np.array(seen.values[name])
        array[0] = longest + (count if name == "seq_lens" else 0)
        seen.values[name] = array
    positions = np.array(seen.values["positions"])
    positions[:count] = np.arange(longest, longest + count)
    seen.values["positions"] = positions


def window_twice(seen: Seen) -> None:
    needed = int(np.diff(seen.values["query_start"])[0]) if seen.detail["is_decode"][0] else 0
    seen.need(needed > 1)
    seen.detail["windows"] = np.array(seen.detail["windows"])
    seen.detail["windows"][0, 1] = seen.detail["windows"][0, 0]


def sampled(*tokens: int) -> Damage:
    """Other tokens for the first row that is not discarded, -1 behind them."""

    def damage(seen: Seen) -> None:
        array = np.array(seen.detail["sampled"])
        kept = np.flatnonzero(~np.array(seen.detail["discarded"], bool))
        seen.need(len(kept) and array.shape[1] >= len(tokens))
        array[kept[0]] = -1
        array[kept[0], : len(tokens)] = tokens
        seen.detail["sampled"] = array

    return damage


def more_than_drafted(seen: Seen) -> None:
    array, lens = np.array(seen.detail["sampled"]), np.array(seen.detail["draft_lens"])
    short = np.flatnonzero(lens + 1 < array.shape[1])
    seen.need(len(short))
    array[short[0], : lens[short[0]] + 2] = 1
    seen.detail["sampled"] = array


def uncounted(seen: Seen) -> None:
    kept = np.flatnonzero(~np.array(seen.detail["discarded"], bool))
    seen.need(len(kept))
    counts = np.array(seen.values["valid_count"])
    counts[kept[0]] += 1
    seen.values["valid_count"] = counts


def backup_token(seen: Seen) -> None:
    gone = np.flatnonzero(np.array(seen.detail["discarded"], bool))
    seen.need(len(gone))
    tokens = np.array(seen.detail["backup_token"])
    tokens[gone[0]] += 1
    seen.detail["backup_token"] = tokens


def plus(difference: int) -> Callable[[Any], Any]:
    return lambda old: old + difference


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
    ("I-11", short_table),
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
    ("I-25", put("values", "discarded", 0, lambda old: not old)),
]
INPUTS: list[tuple[str, Damage]] = [
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
]
SAMPLED: list[tuple[str, Damage]] = [
    ("I-50", sampled()),
    ("I-50", sampled(-1, 5)),
    ("I-50", more_than_drafted),
    ("I-51", uncounted),
    ("I-52", put("values", "next_token", 0, plus(1))),
    ("I-52", backup_token),
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
def observations() -> list[tuple[Scenario, Observation]]:
    """Those of right runs."""
    return [
        (checker(name).scenario, observation)
        for name in SCENARIOS
        for observation in checker(name).execute().observations
    ]


def damaged(boundary: Boundary, damage: Damage) -> tuple[Scenario, Observation]:
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
