"""What went on in batches: rows, drafts, budgets and graphs, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from racegate.explore.features.facts import RunFacts, SeenEntry


def temperatures(facts: RunFacts) -> Iterator[set[bool]]:
    """By step: whether its rows that sample do so at random."""
    is_random = {request.name: request.temperature > 0 for request in facts.scenario.requests}
    for step in facts.steps:
        yield {is_random[e.request] for e in step.entries if not e.is_discarded}


def widest(facts: RunFacts) -> int:
    """Rows of the largest batch."""
    return max((len(step.rows) for step in facts.steps), default=0)


def is_waiting_for_row(facts: RunFacts) -> bool:
    """A request waits while every row is taken."""
    most = facts.scenario.engine.rows_max
    return any(step.waiting and step.running >= most for step in facts.steps)


def is_waiting_for_blocks(facts: RunFacts) -> bool:
    """A request waits with rows left, and not even the least that one needs is free."""
    engine = facts.scenario.engine
    width = 1 + engine.draft_len_max
    return any(
        step.waiting
        and step.running < engine.rows_max
        and (step.free_state_blocks < width or step.free_blocks * engine.block_size < width)
        for step in facts.steps
    )


def changes_hands(facts: RunFacts) -> bool:
    """A row holds another request than in the step before."""
    rows = [step.rows for step in facts.steps]
    return any(
        name != now
        for before, after in pairwise(rows)
        for name, now in zip(before, after, strict=False)
    )


def enters_row_of_high_count(facts: RunFacts) -> bool:
    """A request enters a row whose request of the step before had drafts accepted."""
    counts: dict[int, int] = {}
    for step in facts.steps:
        if any(e.hit is not None and counts.get(e.row, 1) > 1 for e in step.entries):
            return True
        counts = {e.row: e.accepted for e in step.entries if e.is_decode}
    return False


def moves_with_high_count(facts: RunFacts) -> bool:
    """A request that had drafts accepted in the step before is in another row now."""
    return any(
        before.is_decode
        and before.accepted > 1
        and entry.row != before.row
        and entry.step == before.step + 1
        for before, entry in facts.successions()
    )


def spends_budget(facts: RunFacts) -> bool:
    """A step schedules all tokens that it may."""
    return any(
        sum(entry.tokens for entry in step.entries) >= facts.budget(step.step)
        for step in facts.steps
    )


def mixes_prefill_and_decode(facts: RunFacts) -> bool:
    """One step admits a request and decodes another with drafts."""
    return any(
        any(e.hit is not None for e in step.entries) and any(_verifies(e) for e in step.entries)
        for step in facts.steps
    )


def discards_beside_drafts(facts: RunFacts) -> bool:
    """One step computes part of a prompt and verifies another request's drafts."""
    return any(
        any(e.is_discarded for e in step.entries) and any(_verifies(e) for e in step.entries)
        for step in facts.steps
    )


def _verifies(entry: SeenEntry) -> bool:
    return entry.is_decode and entry.drafts > 0


def is_chunk_of_width(facts: RunFacts) -> bool:
    """A prefill chunk is as long as a row with all its drafts."""
    k = facts.scenario.engine.draft_len_max
    return any(e.tokens == 1 + k > 1 and not e.is_decode for e in facts.entries)


def is_chunk_of_one(facts: RunFacts) -> bool:
    """A prefill chunk is one token: a row like one that decodes without drafts."""
    return any(e.tokens == 1 and not e.is_decode for e in facts.entries)


def accepts_onto_edge(facts: RunFacts) -> bool:
    """Every draft is accepted, and the last kept token ends a block."""
    return _accepts_onto(facts, facts.scenario.engine.block_size)


def accepts_onto_boundary(facts: RunFacts) -> bool:
    """Every draft is accepted, and the last kept token ends a column of states."""
    engine = facts.scenario.engine
    return engine.cache_mode.has_columns and _accepts_onto(facts, engine.state_interval)


def _accepts_onto(facts: RunFacts, interval: int) -> bool:
    return any(
        _verifies(e) and e.accepted == 1 + e.drafts and e.settled % interval == 0
        for e in facts.decoding
    )


def rejects_over_edge(facts: RunFacts) -> bool:
    """Rejected drafts stood in a block of which nothing is kept."""
    size = facts.scenario.engine.block_size
    return any(
        _verifies(e) and -(-(e.computed + e.tokens) // size) > -(-e.settled // size)
        for e in facts.decoding
    )


def accepts_some(facts: RunFacts) -> bool:
    """Some drafts of a row are accepted, and some are not."""
    return any(1 < e.accepted < 1 + e.drafts for e in facts.decoding)


def ends_column_within(facts: RunFacts) -> bool:
    """A column of states ends within an accepted run: one of the middle slots is to be kept."""
    engine = facts.scenario.engine
    interval = engine.state_interval
    return engine.cache_mode.has_columns and any(
        _verifies(e) and e.settled % interval and e.settled // interval > e.computed // interval
        for e in facts.decoding
    )


def rejects_over_boundary(facts: RunFacts) -> bool:
    """Drafts went over the end of a column of states, and not one behind it was accepted."""
    engine = facts.scenario.engine
    interval = engine.state_interval
    return engine.cache_mode.has_columns and any(
        _verifies(e) and (e.computed + e.tokens) // interval > e.settled // interval
        for e in facts.decoding
    )


def differs_in_drafts(facts: RunFacts) -> bool:
    """Rows of one step verify different numbers of drafts."""
    return any(len({e.drafts for e in step.entries if e.is_decode}) > 1 for step in facts.steps)


def is_constrained(facts: RunFacts) -> bool:
    """A grammar masks a row that verifies drafts."""
    named = {r.name for r in facts.scenario.requests if r.grammar_modulus}
    return any(_verifies(e) and e.request in named for e in facts.decoding)


def has_part_of_drafts(facts: RunFacts) -> bool:
    """A row verifies drafts, but fewer than k."""
    return any(0 < e.drafts < facts.scenario.engine.draft_len_max for e in facts.decoding)


def has_no_drafts(facts: RunFacts) -> bool:
    """A row decodes without drafts, in an engine that drafts."""
    return any(e.drafts == 0 < facts.scenario.engine.draft_len_max for e in facts.decoding)


def has_no_drafts_after_accepts(facts: RunFacts) -> bool:
    """A row has no drafts where its last step had drafts accepted: the count must not stay."""
    return any(
        before.is_decode and before.accepted > 1 and entry.drafts == 0
        for before, entry in facts.successions()
    )


def returns_after_accepts(facts: RunFacts) -> bool:
    """A request was not in the last step, and in its last one drafts were accepted."""
    return any(
        before.is_decode and before.accepted > 1 and entry.step > before.step + 1
        for before, entry in facts.successions()
    )


def is_clipped(facts: RunFacts) -> bool:
    """Drafts are left out because the model's longest sequence ends."""
    engine = facts.scenario.engine
    return any(
        e.drafts < engine.draft_len_max and e.planned + e.tokens == engine.model_len_max - 1
        for e in facts.decoding
    )


def is_idle_between(facts: RunFacts) -> bool:
    """A step without a plan lies between steps with one."""
    steps = [step.step for step in facts.steps]
    return bool(steps) and len(steps) < 1 + steps[-1] - steps[0]


def replays_between(facts: RunFacts) -> bool:
    """A step without graph lies between two replays."""
    replayed = [step.replayed > 0 for step in facts.steps]
    if not any(replayed):
        return False
    first, last = replayed.index(True), len(replayed) - replayed[::-1].index(True)
    return not all(replayed[first:last])


def pads_where_request_stood(facts: RunFacts) -> bool:
    """A pad row of a replay stands where a request stood before."""
    most = 0
    for step in facts.steps:
        if step.replayed > len(step.rows) and most > len(step.rows):
            return True
        most = max(most, len(step.rows))
    return False


def fills_graph(facts: RunFacts) -> bool:
    """A replay of two rows or more without a pad row."""
    return any(step.replayed == len(step.rows) > 1 for step in facts.steps)


def replays_sizes(facts: RunFacts) -> bool:
    """Graphs of two sizes are replayed in one run."""
    return len({step.replayed for step in facts.steps if step.replayed}) > 1


def replays_chunk(facts: RunFacts) -> bool:
    """A step with a chunk of a prompt replays."""
    return any(
        step.replayed and not all(entry.is_decode for entry in step.entries) for step in facts.steps
    )


def corrects_coordinates(facts: RunFacts) -> bool:
    """Coordinates are planned with drafts that were rejected, and nobody waits for their counts."""
    scenario = facts.scenario
    if not scenario.model.has_mrope or scenario.engine.cache_mode.splits_chunks:
        return False
    return any(
        e.is_decode and e.planned != e.computed for step in facts.steps for e in step.entries
    )


def ends_within_image(facts: RunFacts) -> bool:
    """A chunk of a prompt has some tokens of an image, and the next one the others."""
    images = {request.name: request.images for request in facts.scenario.requests}
    return any(
        image.start < e.computed + e.tokens < image.start + image.tokens
        for step in facts.steps
        for e in step.entries
        for image in images[e.request]
    )


def drafts_behind_image(facts: RunFacts) -> bool:
    """A request with an image verifies drafts."""
    shown = {request.name for request in facts.scenario.requests if request.images}
    return any(e.drafts and e.request in shown for step in facts.steps for e in step.entries)
