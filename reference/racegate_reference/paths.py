"""A request's path: its truth and everything computed along it (DEFINITION section 3).

Sampling is lossless path by path, unless drafts are drawn: a request has one sequence of tokens,
whatever was batched or drafted with it. States, cache entries and tokens are therefore computed
once per request and looked up by the number of tokens before them.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from racegate.scenario.settings import ModelSpec
from racegate.scenario.spec import Request
from racegate_reference.model import (
    Model,
    ModelState,
    Recurrent,
    build_model,
    forward,
    initial_state,
)
from racegate_reference.numbers import Array
from racegate_reference.places import place_of
from racegate_reference.sampling import (
    Draw,
    constrain,
    draw_against,
    draw_token,
    number_at,
)


class Path:
    """Plain decoding of one request, one token after another, continued as far as it is asked."""

    def __init__(self, model: Model, request: Request) -> None:
        self._model = model
        self.request = request
        self._tokens = list(request.prompt)
        self._margins: list[float] = []
        self._hidden: list[Array] = []
        self._state: ModelState = initial_state(model)
        # The recurrent layers' states after 0, 1, 2, ... tokens; an attention cache after n
        # tokens is the first n entries of the latest one.
        self._history: list[list[Recurrent]] = [[] for _ in self._state]
        self._remember()

    def token(self, position: int) -> int:
        """The token at a position."""
        while len(self._tokens) <= position:
            self._advance()
        return self._tokens[position]

    def tokens(self, start: int, stop: int) -> tuple[int, ...]:
        """The tokens at the positions start .. stop - 1."""
        if stop > start:
            self.token(stop - 1)
        return tuple(self._tokens[start:stop])

    def margin(self, position: int) -> float:
        """By how much the token at a position behind the prompt was decided (see Draw)."""
        self.token(position)
        return self._margins[position - len(self.request.prompt)]

    def hidden(self, position: int) -> Array:
        """The target hidden state [D] of a position."""
        self._compute(position + 1)
        return self._hidden[position]

    def recurrent(self, layer: int, length: int) -> Recurrent:
        """A recurrent layer after `length` tokens."""
        self._compute(length)
        return self._history[layer][length]

    def kv(self, layer: int, start: int, stop: int) -> Array:
        """An attention layer's cache entries of the positions start .. stop - 1, [n, 2HP]."""
        self._compute(stop)
        cache = self._state[layer]
        assert not isinstance(cache, Recurrent)
        return cache.kv[start:stop]

    def _compute(self, length: int) -> None:
        while len(self._hidden) < length:
            self._advance()

    def _advance(self) -> None:
        """Computes one more token, and draws the one behind it unless the prompt gives it."""
        position = len(self._hidden)
        place = place_of(self.request, position)
        output = forward(self._model, self._state, self._tokens[position], place)
        self._hidden.append(output.hidden)
        self._state = output.state
        self._remember()
        if len(self._hidden) == len(self._tokens):
            self._behind_last(output.logits)

    def _behind_last(self, logits: Array) -> None:
        """The logits [V] behind the last token are known."""
        number = number_at(self.request.seed, len(self._tokens))
        allowed = self._allowed(logits)
        self._append(draw_token(allowed, number=number, temperature=self.request.temperature))

    def _append(self, draw: Draw) -> None:
        self._tokens.append(draw.token)
        self._margins.append(draw.margin)

    def _allowed(self, logits: Array) -> Array:
        """The logits [V] behind the last token, after the grammar."""
        return constrain(logits, previous=self._tokens[-1], modulus=self.request.grammar_modulus)

    def _remember(self) -> None:
        for states, state in zip(self._history, self._state, strict=True):
            if isinstance(state, Recurrent):
                states.append(state)


class EmittedPath(Path):
    """The path of a request whose drafts are drawn: it ends with the last token emitted, because
    the next one depends on the draft that it is verified against.
    """

    _logits: Array  # [V], behind the last token

    def emit(self, draft: int | None, weights: Array | None) -> int:
        """Draws the token behind the last one. draft, weights [V]: what is verified there, if
        anything is.
        """
        self._compute(len(self._tokens))
        number = number_at(self.request.seed, len(self._tokens))
        heat, logits = self.request.temperature, self._allowed(self._logits)
        if draft is None or weights is None:
            draw = draw_token(logits, number=number, temperature=heat)
        else:
            draw = draw_against(logits, draft, weights, number=number, temperature=heat)
        self._append(draw)
        return draw.token

    def _behind_last(self, logits: Array) -> None:
        self._logits = logits


# Distinct models and requests that one keeper remembers.
MODELS_MAX = 8
PATHS_MAX = 512


class Paths:
    """Models and paths, each computed once and continued as far as anybody asks.

    Whoever judges many scenarios of the same requests hands one keeper to all of them. A path
    depends on the model, the prompt, and how tokens are drawn; on nothing that a scenario does.
    """

    def __init__(self) -> None:
        self.model = lru_cache(MODELS_MAX)(build_model)
        self._path = lru_cache(PATHS_MAX)(self._new_path)

    def path(self, spec: ModelSpec, request: Request) -> Path:
        """The path of a request under a model. Raises ScenarioError as build_model does."""
        drawn = msgspec.structs.replace(
            request, name="", arrive=0, max_tokens=1, stop_after=None, stop_token=None, accepts=()
        )
        return self._path(spec, drawn)

    def emitted_path(self, spec: ModelSpec, request: Request) -> EmittedPath:
        """A path of one run, which nobody else continues. Raises ScenarioError as build_model
        does.
        """
        return EmittedPath(self.model(spec), request)

    def _new_path(self, spec: ModelSpec, request: Request) -> Path:
        return Path(self.model(spec), request)
