"""What a step hands on: its plan's entries, their results, and both together as a frame."""

from __future__ import annotations

import msgspec

from racegate_reference.numbers import Array
from racegate_reference.rows import Region


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One request in a plan (DEFINITION section 5), with the counters before the plan's advance.

    tokens: n, inputs of the step; drafts: d, how many of them are drafts; computed: optimistic.
    decode: in decode phase; chunk: a prefill chunk, which does not reach the last known token.
    round: how many earlier steps of the request were not prefill chunks.
    loaded: L if the plan admitted the request with a saved prefix of L tokens (offload), else 0.
    """

    request: str
    incarnation: int
    tokens: int
    drafts: int
    computed: int
    decode: bool
    chunk: bool
    round: int
    loaded: int
    region: Region


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What a step did for one entry.

    start, end: the numbers of tokens with a final state before and after it (F and F').
    selecting: the count that selects the live state the step starts from.
    inputs: [n] token ids; emitted: the a sampled tokens, none for a chunk; target: of the drafter.
    proposed: the drafts for the next step, none for a chunk; margin: of the closest decision.
    weights: [V] of each draft proposed, where drafts are drawn.
    """

    entry: Entry
    start: int
    end: int
    selecting: int
    inputs: tuple[int, ...]
    emitted: tuple[int, ...]
    target: int
    proposed: tuple[int, ...]
    margin: float
    weights: tuple[Array, ...]


class Frame(msgspec.Struct, frozen=True):
    """A step that ran: its results in plan order."""

    step: int
    results: tuple[Result, ...]
