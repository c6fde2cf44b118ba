"""Observations of the reference: the fields of each boundary (DEFINITION section 7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from racegate.history.observe import Boundary, Observation
from racegate.scenario.settings import CacheMode, Cascade, DrafterKind, LayerKind, Numerics, Zeroing
from racegate.scenario.spec import OwnScenario
from racegate_reference.executor import Executor
from racegate_reference.frames import Frame, Result
from racegate_reference.model import Model
from racegate_reference.numbers import Array
from racegate_reference.paths import Path
from racegate_reference.places import place_of
from racegate_reference.scheduler import Plan, boundaries_of
from racegate_reference.tracking import Tracked

Tracking = Mapping[str, Tracked]


def scheduled(step: int, plan: Plan, requests: Tracking) -> Observation:
    """After plan(step): the plan, and the block tables of its requests."""
    names = [entry.request for entry in plan.entries]
    values: dict[str, Any] = {
        "plan": tuple((e.request, e.tokens, e.drafts) for e in plan.entries),
        "preempted": plan.preempted,
        "block_table": {name: tuple(requests[name].tables.attention) for name in names},
        "state_table": {name: tuple(requests[name].tables.state) for name in names},
    }
    return Observation(step=step, boundary=Boundary.SCHEDULED, values=values)


def processed(frame: Frame, requests: Tracking) -> Observation:
    """After a frame was processed: the tokens and counters of its requests."""
    named = [requests[result.entry.request] for result in frame.results]
    kept = [tracked for tracked in named if tracked.outcome != "abort"]
    values: dict[str, Any] = {
        "delivered": {tracked.name: tuple(tracked.delivered) for tracked in kept},
        "computed": {tracked.name: tracked.computed for tracked in kept},
        "placeholders": {tracked.name: tracked.placeholders for tracked in kept},
    }
    return Observation(step=frame.step, boundary=Boundary.PROCESSED, values=values)


class StepObserver:
    """Observes executed steps; `results` are in row order everywhere, R rows and T tokens."""

    def __init__(self, scenario: OwnScenario, model: Model, executor: Executor) -> None:
        self._engine = scenario.engine
        self._model = model
        self._executor = executor

    def prepared(self, step: int, results: Sequence[Result]) -> Observation:
        """What the host decided about each row."""
        values: dict[str, Any] = {
            "rows": tuple(result.entry.request for result in results),
            "discarded": np.array([result.entry.chunk for result in results], dtype=bool),
            "backup_token": _ints([self._next_token(r) if r.entry.chunk else -1 for r in results]),
            "accept_target": _ints([result.target for result in results]),
        }
        return Observation(step=step, boundary=Boundary.PREPARED, values=values)

    def inputs(self, step: int, results: Sequence[Result], requests: Tracking) -> Observation:
        """What the step starts from."""
        counts = [result.entry.tokens for result in results]
        positions = [np.arange(r.start, r.start + r.entry.tokens) for r in results]
        values: dict[str, Any] = {
            "computed": _ints([result.start for result in results]),
            "accepted": _ints([result.selecting for result in results]),
            "seq_lens": _ints([result.start + result.entry.tokens for result in results]),
            "query_start": _ints(np.cumsum([0, *counts])),
            "positions": _ints(np.concatenate(positions)),
            "slot_mapping": _ints(
                np.concatenate(
                    [
                        self._slots(requests[result.entry.request], places)
                        for result, places in zip(results, positions, strict=True)
                    ]
                )
            ),
            "input_ids": _ints([token for result in results for token in result.inputs]),
        }
        if self._model.spec.has_mrope:
            values["mrope_positions"] = self._mrope_positions(results)
        if self._engine.cascade is Cascade.ON:
            values["common_prefix"] = _ints([self._common_prefix(results, requests)])
        for layer in self._layers(recurrent=True):
            before = [self._path(r).recurrent(layer, r.start) for r in results]
            values[f"state.{layer}"] = np.stack([state.state for state in before])
            values[f"conv.{layer}"] = np.stack([state.conv for state in before])
        if self._engine.zeroing is Zeroing.FRESH:
            values["fresh_dirty"] = _ints([0] * len(results))
        if self._engine.cache_mode is CacheMode.OFFLOAD:
            self._add_loaded(values, results)
        return Observation(step=step, boundary=Boundary.INPUTS, values=values)

    def _common_prefix(self, results: Sequence[Result], requests: Tracking) -> int:
        """Positions that stand in the same block of all requests and that each has computed."""
        size, first = self._engine.block_size, requests[results[0].entry.request].tables.attention
        length = 0
        while all(
            length + size <= result.start
            and requests[result.entry.request].tables.attention[length // size]
            == first[length // size]
            for result in results
        ):
            length += size
        return length

    def _mrope_positions(self, results: Sequence[Result]) -> Array:
        """The coordinates of all tokens, [T, 3]."""
        places = [
            place_of(self._path(result).request, position)
            for result in results
            for position in range(result.start, result.start + result.entry.tokens)
        ]
        return _ints(np.stack(places))

    def sampled(self, step: int, results: Sequence[Result]) -> Observation:
        """What the step leaves behind."""
        k = self._engine.draft_len_max
        discarded_count = int(self._engine.drafter is DrafterKind.EXTRACT_HIDDEN_STATES)
        values: dict[str, Any] = {
            "sampled": _ints([_padded(result.emitted, 1 + k) for result in results]),
            "accepted": _ints([len(result.emitted) or 1 for result in results]),
            "valid_count": _ints([len(result.emitted) or discarded_count for result in results]),
            "next_token": _ints([self._next_token(result) for result in results]),
            "drafts": _ints([_padded(result.proposed, k) for result in results]),
        }
        if self._engine.draws_drafts:
            values["draft_weights"] = self._draft_weights(results)
        for layer in self._layers(recurrent=True):
            self._add_recurrent(values, layer, results)
        for layer in self._layers(recurrent=False):
            values[f"kv.{layer}"] = _kept(
                results, [self._path(r).kv(layer, r.start, r.end) for r in results]
            )
        if self._engine.drafter is not DrafterKind.NONE:
            entries = [self._draft_entries(r, r.start, r.end) for r in results]
            values["draft_kv"] = _kept(results, entries)
        return Observation(step=step, boundary=Boundary.SAMPLED, values=values)

    def _add_loaded(self, values: dict[str, Any], results: Sequence[Result]) -> None:
        """The cache entries [S, ...] of the saved prefixes that the plan loaded."""
        for layer in self._layers(recurrent=False):
            values[f"loaded_kv.{layer}"] = np.concatenate(
                [self._path(r).kv(layer, 0, r.entry.loaded) for r in results]
            )
        if self._engine.drafter is not DrafterKind.NONE:
            values["loaded_draft_kv"] = np.concatenate(
                [self._draft_entries(r, 0, r.entry.loaded) for r in results]
            )

    def _add_recurrent(self, values: dict[str, Any], layer: int, results: Sequence[Result]) -> None:
        ends = [self._path(result).recurrent(layer, result.end) for result in results]
        values[f"conv.{layer}"] = np.stack([state.conv for state in ends])
        values[f"state.{layer}"] = np.stack([self._snapshots(layer, r) for r in results])
        if self._engine.cache_mode.has_columns:
            values[f"checkpoint.{layer}"] = np.stack([self._checkpoint(layer, r) for r in results])

    def _snapshots(self, layer: int, result: Result) -> Array:
        """The states that a step kept, [1 + k, H, P, N]: after each accepted input, or the end."""
        first = result.start + 1 if result.entry.decode else result.end
        states = [
            self._path(result).recurrent(layer, length).state
            for length in range(first, result.end + 1)
        ]
        snapshots = np.zeros((1 + self._engine.draft_len_max, *states[0].shape), states[0].dtype)
        snapshots[: len(states)] = states
        return snapshots

    def _checkpoint(self, layer: int, result: Result) -> Array:
        """The state [H, P, N] at the last boundary that a step kept, 0 if there is none."""
        kept = boundaries_of(result, self._engine)
        # The state before the first token is 0.
        return self._path(result).recurrent(layer, max(kept, default=0)).state

    def _draft_entries(self, result: Result, start: int, stop: int) -> Array:
        """The drafter's cache entries of the positions start .. stop - 1, [n, ...]."""
        drafter = self._executor.requests[result.entry.request].drafter
        assert drafter is not None
        return drafter.entries(start, stop)

    def _draft_weights(self, results: Sequence[Result]) -> Array:
        """What the drafts were drawn from, [R, k, V]."""
        spec, k = self._model.spec, self._engine.draft_len_max
        dtype = np.int32 if spec.numerics is Numerics.EXACT else np.float64
        weights = np.zeros((len(results), k, spec.vocab_size), dtype)
        for row, result in enumerate(results):
            for place, of_draft in enumerate(result.weights):
                weights[row, place] = of_draft
        return weights

    def _slots(self, tracked: Tracked, positions: Array) -> Array:
        """Where the attention cache keeps the positions."""
        size = self._engine.block_size
        table = np.array(tracked.tables.attention)
        return np.asarray(table[positions // size] * size + positions % size)

    def _next_token(self, result: Result) -> int:
        """The token behind the last kept input: sampled, or known (backup token)."""
        return self._path(result).token(result.end)

    def _path(self, result: Result) -> Path:
        return self._executor.requests[result.entry.request].path

    def _layers(self, *, recurrent: bool) -> list[int]:
        return [
            index
            for index, layer in enumerate(self._model.layers)
            if (layer.kind is not LayerKind.ATTENTION) == recurrent
        ]


def _kept(results: Sequence[Result], kept: Sequence[Array]) -> Array:
    """Cache entries of all tokens [T, ...], from those kept of each row; 0 for the others."""
    blocks: list[Array] = []
    for result, entries in zip(results, kept, strict=True):
        rejected = result.entry.tokens - len(entries)
        blocks += [entries, np.zeros((rejected, *entries.shape[1:]), entries.dtype)]
    return np.concatenate(blocks)


def _padded(tokens: Sequence[int], length: int) -> list[int]:
    return [*tokens, *[-1] * (length - len(tokens))]


def _ints(values: Any) -> Array:
    return np.array(values, dtype=np.int32)
