"""A request's path: its truth and everything computed along it (DEFINITION section 3).

Sampling is lossless, so a request has one sequence of tokens, whatever was batched or drafted with
it. States, cache entries and tokens are therefore computed once per request and looked up by the
number of tokens before them.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from racegate.scenario.spec import ModelSpec, Request
from racegate_reference.model import (
    Model,
    ModelState,
    Recurrent,
    build_model,
    forward,
    initial_state,
)
from racegate_reference.numbers import Array
from racegate_reference.sampling import Draw, constrain, draw_token, number_at


class Path:
    """Plain decoding of one request, one token after another, continued as far as it is asked."""

    def __init__(self, model: Model, request: Request) -> None:
        self._model = model
        self._request = request
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
        return self._margins[position - len(self._request.prompt)]

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
        output = forward(self._model, self._state, self._tokens[len(self._hidden)])
        self._hidden.append(output.hidden)
        self._state = output.state
        self._remember()
        if len(self._hidden) == len(self._tokens):
            draw = self._draw(output.logits)
            self._tokens.append(draw.token)
            self._margins.append(draw.margin)

    def _draw(self, logits: Array) -> Draw:
        """The token behind the last one, from its logits [V]."""
        request = self._request
        allowed = constrain(logits, previous=self._tokens[-1], modulus=request.grammar_modulus)
        number = number_at(request.seed, len(self._tokens))
        return draw_token(allowed, number=number, temperature=request.temperature)

    def _remember(self) -> None:
        for states, state in zip(self._history, self._state, strict=True):
            if isinstance(state, Recurrent):
                states.append(state)


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

    def _new_path(self, spec: ModelSpec, request: Request) -> Path:
        return Path(self.model(spec), request)
