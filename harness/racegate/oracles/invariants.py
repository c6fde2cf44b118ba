"""Invariants oracle: predicates that must hold at step boundaries, by id
(docs/mechanism.md#invariants).

Each predicate looks at one observation of the asynchronous engine (values and details) and says
what is wrong, or nothing. I-06 is the losslessness oracle, I-30, I-39, I-54 and I-55 the stepwise
oracle, I-60 to I-64 the ordering oracle. I-68, over a whole run, is in counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec
import numpy as np

from racegate.history.observe import Boundary, Observation
from racegate.oracles.every_block import Complaint, i41, i42, i43
from racegate.scenario.spec import OwnScenario


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """A predicate that does not hold. request: whom it concerns, if one."""

    invariant: str
    step: int
    boundary: str
    request: str | None
    message: str


Predicate = Callable[[Observation, OwnScenario], Iterable[Complaint]]


def find_violations(observations: Sequence[Observation], scenario: OwnScenario) -> list[Violation]:
    """The violations of a run, in the order of its boundaries."""
    violations = []
    for observation in observations:
        for name, predicate in PREDICATES[observation.boundary].items():
            for request, message in predicate(observation, scenario):
                violations.append(
                    Violation(
                        invariant=name,
                        step=observation.step,
                        boundary=observation.boundary,
                        request=request,
                        message=message,
                    )
                )
    return violations


def _i01(seen: Observation, scenario: OwnScenario) -> Iterable[Complaint]:
    """placeholders = sum over sampling frames in flight of (1 + d), and not negative."""
    for name, c in seen.detail["counters"].items():
        if c.placeholders != c.promised:
            yield name, f"{c.placeholders} placeholders, frames in flight promise {c.promised}"


def _i02(seen: Observation, scenario: OwnScenario) -> Iterable[Complaint]:
    """Decode phase: computed + 1 = tokens + placeholders."""
    for name, c in seen.detail["counters"].items():
        is_decode = c.is_running and c.computed >= c.prefill_len
        if is_decode and c.computed + 1 != c.tokens + c.placeholders:
            yield name, f"computed {c.computed}, tokens {c.tokens}, placeholders {c.placeholders}"


def _i03(seen: Observation, scenario: OwnScenario) -> Iterable[Complaint]:
    """computed <= model_len_max - 1; prompt + outputs <= model_len_max; outputs <= max_tokens."""
    longest = scenario.engine.model_len_max
    for name, c in seen.detail["counters"].items():
        if c.computed > longest - 1 or c.tokens > longest:
            yield name, f"computed {c.computed}, tokens {c.tokens}, model_len_max {longest}"
        if c.delivered > c.max_tokens:
            yield name, f"{c.delivered} tokens delivered, max_tokens {c.max_tokens}"


def _i04(seen: Observation, scenario: OwnScenario) -> Iterable[Complaint]:
    """Scheduled drafts: at most k and one less than the inputs; none before the first sampled
    token.
    """
    for name, tokens, drafts in seen.values["plan"]:
        if drafts and (drafts > scenario.engine.draft_len_max or drafts > tokens - 1):
            yield name, f"{drafts} drafts among {tokens} inputs"
        if drafts and not seen.detail["is_decode"][name]:
            yield name, f"{drafts} drafts before its first token"


def _i05(seen: Observation, scenario: OwnScenario) -> Iterable[Complaint]:
    """A request that waits has nothing computed, no blocks and no drafts."""
    for name, c in seen.detail["counters"].items():
        if c.is_waiting and (c.computed or c.blocks or c.state_blocks or c.drafts_next):
            yield name, f"waits with computed {c.computed} and {len(c.blocks)} blocks"


def _i07(seen: Observation, scenario: OwnScenario) -> Iterable[Complaint]:
    """With nothing in flight, computed is settled and nothing is promised."""
    for name, c in seen.detail["counters"].items():
        if c.is_running and c.in_flight == 0 and (c.computed != c.settled or c.placeholders):
            yield name, f"computed {c.computed}, settled {c.settled}, placeholders {c.placeholders}"


def _i10(seen: Observation, scenario: OwnScenario) -> Iterable[Complaint]:
    """A block has as many holders as tables name it; only published blocks have several, and only
    align and all publish; held is not free.
    """
    publishes = scenario.engine.cache_mode.publishes
    for pool in ("blocks", "state_blocks"):
        count: dict[int, int] = {}
        for c in seen.detail["counters"].values():
            for block in getattr(c, pool):
                count[block] = count.get(block, 0) + (block != 0)
        state = seen.detail[f"{pool}_pool"]
        for block, holders in count.items():
            if state.holders(block) != holders and block != 0:
                yield None, f"{pool} {block}: {state.holders(block)} holders, in {holders} tables"
            if holders > 1 and not state.is_published(block):
                yield None, f"{pool} {block} is in {holders} tables and not published"
            if holders and state.is_published(block) and not publishes:
                yield None, f"{pool} {block} is published, cache mode {scenario.engine.cache_mode}"
            if holders and state.is_free(block):
                yield None, f"{pool} {block} is held and free"


def _i11(seen: Observation, scenario: OwnScenario) -> Iterable[Complaint]:
    """Enough attention blocks for computed + scheduled + look-ahead."""
    engine = scenario.engine
    for name, tokens, _ in seen.values["plan"]:
        most = seen.detail["computed"][name] + tokens + engine.draft_len_max
        have = len(seen.values["block_table"][name]) * engine.block_size
        if have < min(most, engine.model_len_max):
            yield name, f"{have} cache entries for {most} tokens"


def _i20(seen: Observation, scenario: OwnScenario) -> Iterable[Complaint]:
    """Rows are dense and distinct."""
    rows = seen.values["rows"]
    row_of = seen.detail["row_of"]
    if len(set(rows)) != len(rows) or any(row_of.get(n) != i for i, n in enumerate(rows)):
        yield None, f"rows {rows} against {row_of}"


def _i21(seen: Observation, scenario: OwnScenario) -> Iterable[Complaint]:
    """A block table row is the request's list, then null; rows of nobody are null."""
    for table, blocks in (("block_table", "blocks"), ("state_table", "state_blocks")):
        if table not in seen.detail:
            continue  # in slots the device lays its rows out
        pinned = seen.detail[table]
        for row, name in enumerate(seen.values["rows"]):
            known, named = seen.detail[blocks][name], pinned[row].tolist()
            if named != [*known, *[0] * (len(named) - len(known))]:
                yield name, f"{table} row {row} is {named}, its blocks are {known}"
        if pinned[len(seen.values["rows"]) :].any():
            yield None, f"{table} names blocks behind the last row"


def _i22(seen: Observation, scenario: OwnScenario) -> Iterable[Complaint]:
    """prev_positions: the row of the same request in the previous step, injective."""
    previous = seen.detail["prev_positions"]
    named = previous[previous >= 0]
    if len(set(named.tolist())) != len(named):
        yield None, f"prev_positions {previous.tolist()} names a row twice"
    rows_before = seen.detail["prev_rows"]
    for name, row in zip(seen.values["rows"], previous.tolist(), strict=True):
        if row >= 0 and (row >= len(rows_before) or rows_before[row] != name):
            yield name, f"previous row {row} belonged to {rows_before[row : row + 1]}"
        if row >= 0 and seen.detail["prev_discarded"][row]:
            yield name, f"previous row {row} sampled nothing (I-23)"


def _i24(seen: Observation, scenario: OwnScenario) -> Iterable[Complaint]:
    """Rows stand in the order decode, short extend, long extend, prefill."""
    regions = seen.detail["regions"]
    if list(regions) != sorted(regions):
        yield None, f"regions by row: {regions}"


def _i25(seen: Observation, scenario: OwnScenario) -> Iterable[Complaint]:
    """A row is discarded exactly if its chunk ends before its last known token."""
    for row, name in enumerate(seen.values["rows"]):
        ends_before = seen.detail["chunk_end"][row] < seen.detail["prefill_len"][row]
        if bool(seen.values["discarded"][row]) != bool(ends_before):
            yield name, f"chunk ends at {seen.detail['chunk_end'][row]}"


def _i26(seen: Observation, scenario: OwnScenario) -> Iterable[Complaint]:
    """Request slots of a step's rows are distinct, and none is the null slot."""
    slots = seen.detail.get("slots", ())
    if len(set(slots)) != len(slots) or 0 in slots:
        yield None, f"rows stand in slots {slots}"


def _i31(seen: Observation, scenario: OwnScenario) -> Iterable[Complaint]:
    """The host's computed count is an upper bound of the device's, off by at most the drafts in
    flight.
    """
    host, device = seen.detail["computed_host"], seen.values["computed"]
    slack = scenario.engine.draft_len_max * max(1, scenario.engine.depth - 1)
    for row, name in enumerate(seen.detail["rows"]):
        if not 0 <= host[row] - device[row] <= slack:
            yield name, f"host counts {host[row]}, the device {device[row]}"


def _i32(seen: Observation, scenario: OwnScenario) -> Iterable[Complaint]:
    """seq_lens = F + scheduled; positions F .. F + scheduled - 1, below model_len_max."""
    starts, positions = seen.values["query_start"], seen.values["positions"]
    for row, name in enumerate(seen.detail["rows"]):
        first, end = starts[row], starts[row + 1]
        computed = seen.values["computed"][row]
        expected = list(range(computed, computed + end - first))
        if seen.values["seq_lens"][row] != computed + end - first:
            yield name, f"sequence length {seen.values['seq_lens'][row]}, computed {computed}"
        if positions[first:end].tolist() != expected:
            yield name, f"positions {positions[first:end].tolist()}, computed {computed}"
        if end > first and expected[-1] > scenario.engine.model_len_max - 1:
            yield name, f"position {expected[-1]} behind model_len_max"


def _i33(seen: Observation, scenario: OwnScenario) -> Iterable[Complaint]:
    """query_start starts at 0, never falls, ends at the token count."""
    starts = seen.values["query_start"]
    if starts[0] != 0 or (np.diff(starts) < 0).any() or starts[-1] != len(seen.values["positions"]):
        yield None, f"query_start {starts.tolist()}"


def _i34(seen: Observation, scenario: OwnScenario) -> Iterable[Complaint]:
    """Slots are real, distinct, and not in the null block."""
    slots = seen.values["slot_mapping"]
    if len(set(slots.tolist())) != len(slots) or (slots < scenario.engine.block_size).any():
        yield None, f"slot mapping {slots.tolist()}"


def _i35(seen: Observation, scenario: OwnScenario) -> Iterable[Complaint]:
    """Input ids are tokens."""
    ids = seen.values["input_ids"]
    if ((ids < 0) | (ids >= scenario.model.vocab_size)).any():
        yield None, f"input ids {ids.tolist()}"


def _i36(seen: Observation, scenario: OwnScenario) -> Iterable[Complaint]:
    """Accepted counts that select states lie in 1 .. 1 + k."""
    most = 1 + scenario.engine.draft_len_max
    for name, count in zip(seen.detail["rows"], seen.values["accepted"].tolist(), strict=True):
        if not 1 <= count <= most:
            yield name, f"accepted count {count}"


def _i38(seen: Observation, scenario: OwnScenario) -> Iterable[Complaint]:
    """The state window of a row: its inputs' columns are real and distinct."""
    counts = np.diff(seen.values["query_start"])
    for row, name in enumerate(seen.detail["rows"]):
        needed = counts[row] if seen.detail["is_decode"][row] else 1
        window = seen.detail["windows"][row, :needed].tolist()
        if 0 in window or len(set(window)) != len(window):
            yield name, f"state window {window}"


def _i40(seen: Observation, scenario: OwnScenario) -> Iterable[Complaint]:
    """Three-dimensional positions of a decode row: all the same, and as far behind its positions as
    its images are shorter than their tokens are many.
    """
    if "mrope_positions" not in seen.values:
        return
    leads = {
        request.name: sum(max(image.grid) - image.tokens for image in request.images)
        for request in scenario.requests
    }
    starts, positions = seen.values["query_start"], seen.values["positions"]
    for row, name in enumerate(seen.detail["rows"]):
        of_row = slice(starts[row], starts[row + 1])
        places = seen.values["mrope_positions"][of_row]
        expected = positions[of_row, None] + leads[name]
        if seen.detail["is_decode"][row] and not np.array_equal(places, expected.repeat(3, axis=1)):
            yield name, f"positions {positions[of_row].tolist()} stand at {places.tolist()}"


def _i44(seen: Observation, scenario: OwnScenario) -> Iterable[Complaint]:
    """The common prefix: whole blocks, the same ones of every row, and computed by every row."""
    if "common_prefix" not in seen.values:
        return
    prefix, size = int(seen.values["common_prefix"][0]), scenario.engine.block_size
    tables = seen.detail["block_tables"]
    for row, name in enumerate(seen.detail["rows"]):
        computed = int(seen.values["computed"][row])
        own, first = tables[row][: prefix // size], tables[0][: prefix // size]
        if prefix % size or prefix > computed or own != first:
            yield name, f"common prefix of {prefix} tokens: {computed} computed, in blocks {own}"


def _i50(seen: Observation, scenario: OwnScenario) -> Iterable[Complaint]:
    """Sampled ids: a valid prefix of 1 .. 1 + d tokens, then -1."""
    for row, name in enumerate(seen.detail["rows"]):
        tokens = seen.detail["sampled"][row].tolist()
        count = len(tokens) - tokens.count(-1)
        if not 1 <= count <= 1 + seen.detail["draft_lens"][row] or -1 in tokens[:count]:
            yield name, f"sampled {tokens} with {seen.detail['draft_lens'][row]} drafts"


def _i51(seen: Observation, scenario: OwnScenario) -> Iterable[Complaint]:
    """The two counts agree where nothing is discarded."""
    valid, accepted = seen.values["valid_count"], seen.values["accepted"]
    for row, name in enumerate(seen.detail["rows"]):
        if valid[row] != accepted[row] and not seen.detail["discarded"][row]:
            yield name, f"valid count {valid[row]}, accepted {accepted[row]}"


def _i52(seen: Observation, scenario: OwnScenario) -> Iterable[Complaint]:
    """The next token is the last valid one; the backup token for discarded rows."""
    for row, name in enumerate(seen.detail["rows"]):
        tokens = seen.detail["sampled"][row]
        expected = tokens[tokens != -1][-1:]
        if seen.detail["discarded"][row]:
            expected = seen.detail["backup_token"][row : row + 1]
        if expected.tolist() != [seen.values["next_token"][row]]:
            yield name, f"next token {seen.values['next_token'][row]}, expected {expected.tolist()}"


def _i57(seen: Observation, scenario: OwnScenario) -> Iterable[Complaint]:
    """A drawn draft has a weight in its own row, unless there was no position for it."""
    if "draft_weights" not in seen.values:
        return
    drafts, weights = seen.values["drafts"], seen.values["draft_weights"]
    for row, name in enumerate(seen.detail["rows"]):
        for place in np.flatnonzero(weights[row].any(-1)).tolist():
            draft = drafts[row, place]
            if not 0 <= draft < weights.shape[-1] or not weights[row, place, draft] > 0:
                yield name, f"draft {place} is {draft}, which has no weight"


def _i65(seen: Observation, scenario: OwnScenario) -> Iterable[Complaint]:
    """At most `depth` steps in flight."""
    if seen.detail["frames_in_flight"] > scenario.engine.depth:
        yield None, f"{seen.detail['frames_in_flight']} steps in flight"


PREDICATES: dict[str, dict[str, Predicate]] = {
    Boundary.SCHEDULED: {
        "I-01": _i01,
        "I-02": _i02,
        "I-03": _i03,
        "I-04": _i04,
        "I-05": _i05,
        "I-10": _i10,
        "I-11": _i11,
        "I-43": i43,
        "I-65": _i65,
    },
    Boundary.PREPARED: {
        "I-20": _i20,
        "I-21": _i21,
        "I-22": _i22,
        "I-24": _i24,
        "I-25": _i25,
        "I-26": _i26,
    },
    Boundary.INPUTS: {
        "I-31": _i31,
        "I-32": _i32,
        "I-33": _i33,
        "I-34": _i34,
        "I-35": _i35,
        "I-36": _i36,
        "I-38": _i38,
        "I-40": _i40,
        "I-41": i41,
        "I-42": i42,
        "I-44": _i44,
    },
    Boundary.SAMPLED: {"I-50": _i50, "I-51": _i51, "I-52": _i52, "I-57": _i57},
    Boundary.PROCESSED: {
        "I-01": _i01,
        "I-02": _i02,
        "I-03": _i03,
        "I-05": _i05,
        "I-07": _i07,
        "I-10": _i10,
    },
}
