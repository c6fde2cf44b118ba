"""Scenarios from seeds, within what vLLM is asked to run here."""

from __future__ import annotations

from random import Random

from racegate.scenario.spec import Abort, Request, Scenario

# More than the engine has rows for, so that some wait until a row is free.
_REQUESTS = (2, 5)
_ARRIVALS_MAX = 6
_PROMPTS = (3, 16)
_TOKENS = (2, 14)
_ACCEPTS_MAX = 4  # drafts, and the token behind them
_ABORTS = 0.25  # of scenarios


def scenario_of(seed: int) -> Scenario:
    """The same scenario for a seed on every machine."""
    draw = Random(f"vllm {seed}")
    requests = tuple(_request(draw, index) for index in range(draw.randint(*_REQUESTS)))
    events: tuple[Abort, ...] = ()
    if draw.random() < _ABORTS:
        given_up = draw.choice(requests)
        events = (Abort(step=given_up.arrive + draw.randint(2, 4), request=given_up.name),)
    return Scenario(
        name=f"seed_{seed}", title=f"drawn from seed {seed}", requests=requests, events=events
    )


def _request(draw: Random, index: int) -> Request:
    first = draw.randint(0, 40)
    length = draw.randint(*_PROMPTS)
    return Request(
        name=chr(ord("A") + index),
        arrive=draw.randint(0, _ARRIVALS_MAX) if index else 0,
        prompt=tuple(range(first, first + length)),
        max_tokens=draw.randint(*_TOKENS),
        accepts=tuple(draw.randint(1, _ACCEPTS_MAX) for _ in range(draw.randint(1, 3))),
    )
