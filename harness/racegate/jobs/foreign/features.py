"""Drawn requests with what releases do besides: prefills in chunks, prefixes in common, sampling
with seeds and penalties, and grammars. A pool with few blocks is not drawn: campaigns keep
scenarios in the form of our own engine's, which has no place for it.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import msgspec

from racegate.jobs.foreign.requests import STRETCH, scenario_of
from racegate.scenario.spec import OwnScenario, Request, Scenario, configured

_CHUNKED = (260, 380)  # tokens of a prompt: more than a release takes in one step
_TEMPERATURES = (0.05, 0.08)  # at which the scripted token is certain
_MODULUS = 2  # of grammars

Change = Callable[[Random, Scenario], Scenario]


def drawn_features(seed: int, index: int) -> OwnScenario:
    """The scenario of that index in a campaign. Its name ends with it."""
    number = seed * STRETCH + index
    drawn = featured(number)
    return configured(msgspec.structs.replace(drawn, name=f"features-{seed}-{index}"))


def featured(seed: int) -> Scenario:
    """The same scenario for a seed on every machine, with one feature at least."""
    draw = Random(f"features {seed}")
    chosen = draw.sample(_CHANGES, draw.randint(1, 3))
    scenario = scenario_of(seed)
    for change in _CHANGES:  # in this order: a prefix may be that of a prompt in chunks
        if change in chosen:
            scenario = change(draw, scenario)
    return scenario


def _chunked(draw: Random, scenario: Scenario) -> Scenario:
    """A prompt takes several steps."""
    first, length = draw.randint(0, 40), draw.randint(*_CHUNKED)
    prompt = tuple((first + 13 * place) % 61 for place in range(length))
    at = draw.randrange(len(scenario.requests))
    return _with(scenario, at, prompt=prompt)


def _shared(draw: Random, scenario: Scenario) -> Scenario:
    """The last request begins with the prompt of another one, and may be given its blocks."""
    *others, last = scenario.requests
    prefix = max((one.prompt for one in others), key=len)
    arrive = max(one.arrive for one in others) + draw.randint(1, 4)
    at = len(others)
    return _with(scenario, at, prompt=(*prefix, *last.prompt[:4]), arrive=arrive)


def _sampled(draw: Random, scenario: Scenario) -> Scenario:
    """Requests have a temperature, a seed, and penalties of their own."""
    for at in _some(draw, scenario):
        temperature = draw.choice(_TEMPERATURES)
        scenario = _with(scenario, at, temperature=temperature, seed=draw.randint(1, 99))
    return scenario


def _constrained(draw: Random, scenario: Scenario) -> Scenario:
    """Requests have a grammar."""
    for at in _some(draw, scenario):
        if not scenario.requests[at].temperature:
            scenario = _with(scenario, at, grammar_modulus=_MODULUS)
    return scenario


_CHANGES: tuple[Change, ...] = (_chunked, _shared, _sampled, _constrained)


def _some(draw: Random, scenario: Scenario) -> list[int]:
    """Places of requests: one at least."""
    count = len(scenario.requests)
    return sorted(draw.sample(range(count), draw.randint(1, count)))


def _with(scenario: Scenario, at: int, **changes: object) -> Scenario:
    requests: list[Request] = list(scenario.requests)
    requests[at] = msgspec.structs.replace(requests[at], **changes)
    return msgspec.structs.replace(scenario, requests=tuple(requests))
