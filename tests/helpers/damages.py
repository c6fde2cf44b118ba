"""Damages for observations: each changes one thing, where there is something to change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from racegate.scenario.settings import CacheMode
from racegate.scenario.spec import OwnScenario


@dataclass
class Seen:
    """An observation to be damaged."""

    values: dict[str, Any]
    detail: dict[str, Any]
    scenario: OwnScenario

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

    def held(self, pool: str, more: dict[int, int]) -> None:
        """So many more holders of some blocks."""
        view = self.detail[f"{pool}_pool"]
        held = zip(view.blocks, view.holder_counts, strict=True)
        counts = tuple(count + more.get(block, 0) for block, count in held)
        self.pool(f"{pool}_pool", holder_counts=counts)


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
        seen.held(pool, {blocks[0]: 1, lost: -1})
        seen.pool(f"{pool}_pool", published=frozenset())

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
        seen.held(pool, {seen.first(pool)[0]: -1})

    return damage


def published_without_align(pool: str) -> Damage:
    def damage(seen: Seen) -> None:
        seen.need(seen.first(pool) and not seen.scenario.engine.cache_mode.has_columns)
        seen.pool(f"{pool}_pool", published=frozenset(seen.first(pool)[:1]))

    return damage


def short_table(seen: Seen) -> None:
    seen.need(seen.values["plan"])
    name = seen.values["plan"][0][0]
    seen.values["block_table"] = seen.values["block_table"] | {name: ()}


def short_state_table(seen: Seen) -> None:
    seen.need(seen.scenario.engine.cache_mode is CacheMode.ALL and seen.values["plan"])
    name = seen.values["plan"][0][0]
    table = seen.values["state_table"][name]
    seen.values["state_table"] = seen.values["state_table"] | {name: table[:-1]}


def writes_full_block(seen: Seen) -> None:
    full = int(seen.values["computed"][0]) // seen.scenario.engine.state_interval
    seen.need("live" in seen.detail and full)
    seen.detail["windows"] = np.array(seen.detail["windows"])
    seen.detail["windows"][0, -1] = seen.detail["state_tables"][0][full - 1]


def starts_elsewhere(*, on_boundary: bool) -> Damage:
    """A row that begins on a boundary starts from a running column, another from a full one."""

    def damage(seen: Seen) -> None:
        computed, interval = int(seen.values["computed"][0]), seen.scenario.engine.state_interval
        seen.need("live" in seen.detail and computed // interval)
        seen.need((computed % interval == 0) == on_boundary)
        seen.detail["live"] = np.array(seen.detail["live"])
        column = computed // interval - (not on_boundary)
        seen.detail["live"][0] = seen.detail["state_tables"][0][column]

    return damage


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


def in_slots(other: Callable[[tuple[int, ...]], tuple[int, ...]]) -> Damage:
    """Rows stand in other slots."""

    def damage(seen: Seen) -> None:
        slots = seen.detail.get("slots", ())
        seen.need(len(slots) > 1)
        seen.detail["slots"] = other(slots)

    return damage


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
    """A row whose last token stands, consistently, one behind the last place there may be."""
    starts, longest = seen.values["query_start"], seen.scenario.engine.model_len_max
    seen.need(len(starts) > 1)
    count = int(starts[1] - starts[0])
    for name in ("computed", "seq_lens"):
        array = np.array(seen.values[name])
        array[0] = longest + 1 - (0 if name == "seq_lens" else count)
        seen.values[name] = array
    positions = np.array(seen.values["positions"])
    positions[:count] = np.arange(longest + 1 - count, longest + 1)
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


def hole_in_sample(seen: Seen) -> None:
    """A token is missing between two, of no more than there may be."""
    sampled_now = np.array(seen.detail["sampled"])
    drafted = np.flatnonzero(np.array(seen.detail["draft_lens"]) > 0)
    seen.need(len(drafted) and sampled_now.shape[1] > 2)
    sampled_now[drafted[0]] = -1
    sampled_now[drafted[0], [0, 2]] = 5
    seen.detail["sampled"] = sampled_now


def more_than_drafted(seen: Seen) -> None:
    array, lens = np.array(seen.detail["sampled"]), np.array(seen.detail["draft_lens"])
    short = np.flatnonzero(lens + 1 < array.shape[1])
    seen.need(len(short))
    array[short[0], : lens[short[0]] + 2] = 1
    seen.detail["sampled"] = array


def too_far_ahead(seen: Seen) -> None:
    """The host counts one token more than drafts in flight explain."""
    slack = seen.k * max(1, seen.scenario.engine.depth - 1)
    host = np.array(seen.detail["computed_host"])
    host[0] = seen.values["computed"][0] + slack + 1
    seen.detail["computed_host"] = host


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


def drawn_without_weight(seen: Seen) -> None:
    seen.need("draft_weights" in seen.values)
    weights = np.array(seen.values["draft_weights"])
    seen.need((weights > 0).sum() > weights.shape[1])
    kept, row = weights.any((1, 2)), weights.any((1, 2)).argmax()
    seen.need(kept[row])
    weights[row, 0, seen.values["drafts"][row, 0]] = 0
    seen.need(weights[row, 0].any())
    seen.values["draft_weights"] = weights


def optimistic_coordinate(seen: Seen) -> None:
    seen.need("mrope_positions" in seen.values and seen.detail["is_decode"][0])
    places = np.array(seen.values["mrope_positions"])
    places[0, 2] += 1
    seen.values["mrope_positions"] = places


def longer_prefix(by: int) -> Damage:
    """A common prefix that is longer than the shortest row."""

    def damage(seen: Seen) -> None:
        seen.need("common_prefix" in seen.values)
        seen.values["common_prefix"] = seen.values["common_prefix"] + by

    return damage


def other_first_block(seen: Seen) -> None:
    seen.need("common_prefix" in seen.values and seen.values["common_prefix"][0] > 0)
    tables = list(seen.detail["block_tables"])
    seen.need(len(tables) > 1)
    seen.detail["block_tables"] = [*tables[:-1], (tables[-1][0] + 1, *tables[-1][1:])]


def plus(difference: int) -> Callable[[Any], Any]:
    return lambda old: old + difference
