"""Drafters: what is proposed after a step, and the entries they cache (DEFINITION section 4)."""

from __future__ import annotations

import math
from typing import Protocol

import msgspec
import numpy as np

from racegate.scenario.settings import DrafterKind, EngineSpec
from racegate_reference.model import Model, attention, empty_cache, head, normed
from racegate_reference.numbers import GOLDEN, ROTATION, Array, mix, mix_word
from racegate_reference.paths import Path
from racegate_reference.places import place_of
from racegate_reference.sampling import (
    Draw,
    draft_number_at,
    draft_weights_of,
    draw_draft,
    greedy,
)

DIGEST_STRIDE = 0xC2B2AE35


class Sampled(msgspec.Struct, frozen=True):
    """What a drafter may use of a row that sampled.

    position: of the last kept input; target: the accepted count that scripted drafts aim at.
    """

    position: int
    tokens: tuple[int, ...]
    target: int


class Drafts(msgspec.Struct, frozen=True):
    """k drafts, and the smallest margin of the decisions that made them. weights: [V] of each, what
    it was drawn from, if the drafter draws; a greedy one has all the weight.
    """

    tokens: tuple[int, ...]
    margin: float = math.inf
    weights: tuple[Array, ...] = ()


class Drafter(Protocol):
    """Drafts along one request's path."""

    def propose(self, sampled: Sampled) -> Drafts: ...

    def entries(self, start: int, stop: int) -> Array:
        """The cache entries of the positions start .. stop - 1, [n, ...]."""


def make_drafter(model: Model, engine: EngineSpec, path: Path) -> Drafter | None:
    """The drafter along a request's path; None if the engine does not draft."""
    required = {DrafterKind.NONE: 0, DrafterKind.EXTRACT_HIDDEN_STATES: 1}
    if required.get(engine.drafter, engine.draft_len_max) != engine.draft_len_max:
        raise ValueError(
            f"drafter {engine.drafter} needs draft_len_max = {required[engine.drafter]}, "
            f"not {engine.draft_len_max}"
        )
    match engine.drafter:
        case DrafterKind.NONE:
            return None
        case DrafterKind.EXTRACT_HIDDEN_STATES:
            return ExtractHiddenStates(model, path)
        case DrafterKind.NGRAM:
            return NgramDrafter(engine, path)
        case DrafterKind.MTP:
            return Mtp(model, engine, path)
        case _:
            return Scripted(model, engine, path)


class Mtp:
    """One attention layer over entries made from a hidden state and the token behind it."""

    def __init__(self, model: Model, engine: EngineSpec, path: Path) -> None:
        self._model = model
        self._engine = engine
        self._path = path
        self._kv = empty_cache(model)
        self._hidden: list[Array] = []
        # Drafts that are not drawn are drawn greedily, whatever the request asks for.
        self._temperature = path.request.temperature if engine.draws_drafts else 0.0

    def propose(self, sampled: Sampled) -> Drafts:
        self._compute(sampled.position + 1)
        hidden, kv = self._hidden[sampled.position], self._kv[: sampled.position + 1]
        tokens: list[int] = []
        weights: list[Array] = []
        margin = math.inf
        for place in range(self._engine.draft_len_max):
            if sampled.position + place >= self._engine.model_len_max:
                tokens.append(0)
                weights.append(np.zeros(self._model.spec.vocab_size))
                continue
            if place > 0:
                hidden, kv = self._pass(tokens[-1], hidden, kv)
            logits = head(self._model, hidden)
            draw = self._draw(logits, position=sampled.position + 2 + place)
            weights.append(draft_weights_of(logits, self._temperature))
            tokens.append(draw.token)
            margin = min(margin, draw.margin)
        return Drafts(tuple(tokens), margin, tuple(weights))

    def _draw(self, logits: Array, *, position: int) -> Draw:
        """The draft for a position, from its logits [V]."""
        if self._temperature == 0.0:
            return greedy(logits)
        weights = draft_weights_of(logits, self._temperature)
        return draw_draft(weights, draft_number_at(self._path.request.seed, position))

    def entries(self, start: int, stop: int) -> Array:
        self._compute(stop)
        return self._kv[start:stop]

    def _compute(self, length: int) -> None:
        for position in range(len(self._hidden), length):
            token = self._path.token(position + 1)
            h, self._kv = self._pass(token, self._path.hidden(position), self._kv)
            self._hidden.append(h)

    def _pass(self, token: int, hidden: Array, kv: Array) -> tuple[Array, Array]:
        """One pass at position len(kv): its h' [D], and kv with its entry."""
        model = self._model
        weights = model.draft
        embedded = normed(model, model.ends["embed"][token], weights.get("token_norm"))
        before = normed(model, hidden, weights.get("hidden_norm"))
        e = weights["fc"] @ np.concatenate([embedded, before])
        place = place_of(self._path.request, len(kv))
        f, kv = attention(model, weights, kv, normed(model, e, weights.get("norm")), place)
        return e + f, kv


class Scripted:
    """Drafts that are right up to a target count, provided that the cached entries are right.

    Here they always are: they come from the truth.
    """

    def __init__(self, model: Model, engine: EngineSpec, path: Path) -> None:
        self._vocab_size = model.spec.vocab_size
        self._draft_len_max = engine.draft_len_max
        self._path = path

    def propose(self, sampled: Sampled) -> Drafts:
        digest = self._digest(sampled.position)
        return Drafts(
            tuple(
                self._draft(sampled, place=place, digest=digest)
                for place in range(self._draft_len_max)
            )
        )

    def entries(self, start: int, stop: int) -> Array:
        following = np.array(self._path.tokens(start + 1, stop + 1), dtype=np.uint32)
        positions = np.arange(start, stop, dtype=np.uint32)
        return mix(following * GOLDEN + positions * ROTATION + 1)[:, None]

    def _draft(self, sampled: Sampled, *, place: int, digest: int) -> int:
        right = self._path.token(sampled.position + 2 + place)
        if place < sampled.target - 1:
            return right
        return (right + 1 + mix_word(digest + place) % (self._vocab_size - 1)) % self._vocab_size

    def _digest(self, position: int) -> int:
        entries = self.entries(0, position + 1)[:, 0]
        positions = np.arange(position + 1, dtype=np.uint32)
        return int(np.sum(mix(entries + positions * DIGEST_STRIDE), dtype=np.uint32))


class NgramDrafter:
    """What followed the last token where it stood before: no model, and often no draft."""

    def __init__(self, engine: EngineSpec, path: Path) -> None:
        self._draft_len_max = engine.draft_len_max
        self._path = path

    def propose(self, sampled: Sampled) -> Drafts:
        end = sampled.position + 1  # of the last token
        last = self._path.token(end)
        for place in range(end - 1, 0, -1):
            if self._path.token(place) == last:
                found = self._path.tokens(place + 1, min(place + 1 + self._draft_len_max, end + 1))
                break
        else:
            found = ()
        return Drafts((*found, *[-1] * (self._draft_len_max - len(found))))

    def entries(self, start: int, stop: int) -> Array:
        return np.array(self._path.tokens(start + 1, stop + 1), dtype=np.int32)[:, None]


class ExtractHiddenStates:
    """No drafting model: the first sampled token is the draft, hidden states are what is cached."""

    def __init__(self, model: Model, path: Path) -> None:
        self._model = model
        self._path = path

    def propose(self, sampled: Sampled) -> Drafts:
        return Drafts(sampled.tokens[:1])

    def entries(self, start: int, stop: int) -> Array:
        hidden = np.empty(
            (stop - start, self._model.spec.hidden_size), dtype=self._model.numerics.dtype
        )
        for place, position in enumerate(range(start, stop)):
            hidden[place] = self._path.hidden(position)
        following = np.array(self._path.tokens(start + 1, stop + 1), dtype=hidden.dtype)
        return np.concatenate([hidden, following[:, None]], axis=1)
