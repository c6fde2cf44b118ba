"""What recurrent states were made of, where nothing is computed: each token that is run changes a
tag in the place of its request's state, as a recurrence does, and copies of states carry it along.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from racegate.order.ranges import Ranges, merged
from racegate.targets.common.inside.session import EngineSession, Tensor
from racegate.targets.common.inside.watch import Watch
from racegate.targets.vllm.inside.tiers.pages import metadata_by_layer
from racegate.targets.vllm.wire import STATE_TAGS, tag_behind

_TAG_BYTES = 8
# Of prompts alone: in a step without drafts, rows that decode may stand before them.
_OF_PREFILLS = (
    "prefill_query_start_loc", "prefill_state_indices", "prefill_has_initial_state",
)  # fmt: skip
# Of the metadata of layers of the gated delta rule; what a step does not need is None there.
_FIELDS = (
    "spec_query_start_loc", "non_spec_query_start_loc", "spec_state_indices_tensor",
    "non_spec_state_indices_tensor", "num_accepted_tokens", "spec_token_indx",
    "non_spec_token_indx", *_OF_PREFILLS,
)  # fmt: skip
_MASKS = "spec_sequence_masks_cpu"  # which rows have drafts; older releases do not keep it


class StateRow(NamedTuple):
    """What a layer does for a row of the batch. reads: the slot of the state that it goes on from,
    None if it begins; tokens: their places in the step; writes: the slot behind each, None of most
    tokens of a prompt
    """

    row: int
    reads: int | None
    tokens: tuple[int, ...]
    writes: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class TaggedStates:
    """Tags of the recurrent layers of a model.

    caches: by the name of a layer, int64 views of its slots [slots]
    rows: names of the requests in the batch
    """

    session: EngineSession
    watch: Watch
    caches: dict[str, Tensor]
    rows: Callable[[], list[str]]

    def touch(self, tokens: Tensor, positions: Tensor, hidden: Tensor) -> None:
        """A forward pass on the current stream. tokens: int64 [n]"""
        metadata, names = metadata_by_layer(), self.rows()
        for layer, cache in self.caches.items():
            found = metadata.get(layer)
            if names and hasattr(found, _MASKS) and getattr(found, "checkpoint", None) is None:
                self._touch(cache, found, names, tokens)

    def _touch(self, cache: Tensor, found: Any, names: list[str], tokens: Tensor) -> None:
        told = {name: one for name in _FIELDS if (one := getattr(found, name, None)) is not None}
        masks = getattr(found, _MASKS)
        drafted = [False] * len(names) if masks is None else masks.tolist()[: len(names)]
        tags = torch.empty(len(names), dtype=torch.int64, device="cuda")
        self.session.session.drain()  # what was asked for until here may not have been done yet
        with self.session.own():
            memory = self.session.memory_of(cache)
            known = {name: self.session.memory_of(one) for name, one in told.items()}
            reads, writes = state_bytes(cache, state_rows(known, drafted, found.num_decodes))

        def work(given: list[Tensor], made: list[Tensor]) -> None:
            landed = dict(zip(told, given[1:], strict=True))
            made[0].zero_()
            for row in state_rows(landed, drafted, found.num_decodes):
                made[0][row.row] = go_on(memory, row, given[0])

        self.session.launch(
            "recurrent states (tags)",
            [tokens, *told.values()],
            [tags],
            work,
            also_reads=reads,
            also_writes=writes,
        )
        self.watch.inner_on_device(STATE_TAGS, {"tags": tags}, rows=names)


def go_on(memory: Tensor, row: StateRow, tokens: Tensor) -> int:
    """Runs the tokens of a row; returns the tag that it goes on from. memory: int64 [slots]"""
    first = 0 if row.reads is None or not _has(memory, row.reads) else int(memory[row.reads])
    tag = first
    for token, slot in zip(row.tokens, row.writes, strict=True):
        if token < len(tokens):
            tag = tag_behind(tag, int(tokens[token]))
        if slot is not None and _has(memory, slot):
            memory[slot] = tag
    return first


def _has(memory: Tensor, slot: int) -> bool:
    return 0 <= slot < len(memory)


def state_rows(
    told: dict[str, Tensor], drafted: Sequence[bool], decodes: int = 0
) -> list[StateRow]:
    """What a layer does in a step. told: of its metadata; drafted: which rows have drafts
    decodes: how many rows decode one token, and stand before prompts
    """
    known = {name: one.tolist() for name, one in told.items()}
    with_drafts = [row for row, has in enumerate(drafted) if has]
    others = [row for row, has in enumerate(drafted) if not has]
    found = []
    for number, row in enumerate(with_drafts):
        tokens = _tokens(known["spec_query_start_loc"], known.get("spec_token_indx"), number)
        slots = known["spec_state_indices_tensor"][number]
        accepted = known["num_accepted_tokens"][number]
        reads = slots[accepted - 1] if 0 < accepted <= len(slots) else None
        found.append(StateRow(row, reads, tokens, (*slots, *[None] * len(tokens))[: len(tokens)]))
    if "non_spec_query_start_loc" not in known:
        return found
    places = known.get("non_spec_token_indx")
    prompts = _prompts(known)
    decodes = decodes if prompts else len(others)
    for number, row in enumerate(others[:decodes]):
        tokens = _tokens(known["non_spec_query_start_loc"], places, number)
        slot = known["non_spec_state_indices_tensor"][number]
        found.append(_one_state(row, slot, tokens, has_begun=True))
    first = known["non_spec_query_start_loc"][decodes] if prompts else 0
    for number, row in enumerate(others[decodes:]):
        starts, slots, begun = prompts
        tokens = _tokens(starts, places, number, first=first)
        found.append(_one_state(row, slots[number], tokens, has_begun=begun[number]))
    return found


def _prompts(known: dict[str, list[Any]]) -> list[list[Any]]:
    """Where the tokens of prompts begin, the slots of their states, and which have begun; empty in
    a step without prompts.
    """
    return [known[name] for name in _OF_PREFILLS] if _OF_PREFILLS[0] in known else []


def _one_state(row: int, slot: int, tokens: tuple[int, ...], *, has_begun: bool) -> StateRow:
    """Of a row that has one slot."""
    last = (None,) * (len(tokens) - 1)
    return StateRow(row, slot if has_begun else None, tokens, (*last, slot)[: len(tokens)])


def _tokens(
    starts: list[int], places: list[int] | None, number: int, *, first: int = 0
) -> tuple[int, ...]:
    """Places of a row's tokens in the step. first: what starts count from"""
    own = range(first + starts[number], first + starts[number + 1])
    return tuple(own) if places is None else tuple(places[at] for at in own if at < len(places))


def state_bytes(cache: Tensor, rows: Sequence[StateRow]) -> tuple[Ranges, Ranges]:
    """Bytes of tags that a step reads and writes, as far as its metadata have landed."""
    base, stride = cache.data_ptr(), cache.stride(0) * cache.itemsize

    def spans(slots: Iterable[int | None]) -> Ranges:
        own = (base + slot * stride for slot in slots if slot is not None and _has(cache, slot))
        return merged((low, low + _TAG_BYTES) for low in own)

    return spans(row.reads for row in rows), spans(slot for row in rows for slot in row.writes)


def states_of(runner: Any) -> dict[str, Tensor]:
    """The first bytes of each slot of the recurrent layers of a started engine's model, by their
    names: a state is copied as a whole.
    """
    layers = runner.compilation_config.static_forward_context
    own = set(map(id, runner.get_model().modules()))
    found = {name: _states_of(layer) for name, layer in layers.items() if id(layer) in own}
    return {name: _tagged(states) for name, states in found.items() if states is not None}


def _states_of(layer: Any) -> Tensor | None:
    """[slots, ...] of a layer with states of convolutions and of a recurrence; None of others."""
    kept: Any = getattr(layer, "kv_cache", None)
    if isinstance(kept, list) and len(kept) == 1:  # releases before had one for each stage
        kept = kept[0]
    is_pair = isinstance(kept, (tuple, list)) and len(kept) == 2
    return kept[1] if is_pair else None


def _tagged(states: Tensor) -> Tensor:
    numbers = states.view(torch.int64)
    return torch.as_strided(numbers, (states.shape[0],), (numbers.stride(0),))
