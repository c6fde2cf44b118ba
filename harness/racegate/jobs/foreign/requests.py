"""Scenarios of requests and aborts alone, from seeds, within what releases are asked to run here.

Rows move where a request ends, and what moves into its row matters most if it is new there. Drawn
independently, arrivals and ends seldom meet; so in most scenarios the others come in when the row
of the first becomes free, or one step before.
"""

from __future__ import annotations

from itertools import chain, cycle
from random import Random

import msgspec

from racegate.scenario.spec import Abort, OwnScenario, Request, Scenario, configured

# More than the engine has rows for, so that some wait until a row is free.
_REQUESTS = (2, 5)
_ARRIVALS_MAX = 6
_PROMPTS = (3, 16)
_TOKENS = (2, 14)
_ACCEPTS_MAX = 4  # drafts, and the token behind them
_MEETINGS = 0.75  # of scenarios: the others come in when the row of the first becomes free
_ABORTS = 0.25  # of scenarios
# Seeds of drawn requests are one line: each campaign has a stretch of it.
STRETCH = 1_000_000


def drawn_number(seed: int, index: int) -> OwnScenario:
    """What a program is given: a number, and nothing that happens."""
    number = seed * STRETCH + index
    return configured(
        Scenario(name=f"number-{seed}-{index}", title=f"number {number}", seed=number, requests=())
    )


def drawn_requests(seed: int, index: int) -> OwnScenario:
    """The scenario of that index in a campaign. Its name ends with it."""
    scenario = scenario_of(seed * STRETCH + index)
    return configured(msgspec.structs.replace(scenario, name=f"requests-{seed}-{index}"))


def scenario_of(seed: int) -> Scenario:
    """The same scenario for a seed on every machine."""
    draw = Random(f"vllm {seed}")
    is_meeting = draw.random() < _MEETINGS
    requests: list[Request] = []
    for _ in range(draw.randint(*_REQUESTS)):
        requests.append(_request(draw, requests, is_meeting=is_meeting))
    events: tuple[Abort, ...] = ()
    if draw.random() < _ABORTS:
        given_up = draw.choice(requests)
        events = (Abort(step=given_up.arrive + draw.randint(2, 4), request=given_up.name),)
    return Scenario(
        name=f"seed_{seed}", title=f"drawn from seed {seed}", requests=tuple(requests),
        events=events,
    )  # fmt: skip


def _request(draw: Random, earlier: list[Request], *, is_meeting: bool) -> Request:
    first = draw.randint(0, 40)
    length = draw.randint(*_PROMPTS)
    if not earlier:
        arrive = 0
    elif is_meeting:
        arrive = free_in(earlier[0]) - 1 - draw.randint(0, 1)
    else:
        arrive = draw.randint(0, _ARRIVALS_MAX)
    return Request(
        name=chr(ord("A") + len(earlier)),
        arrive=arrive,
        prompt=tuple(range(first, first + length)),
        max_tokens=draw.randint(*_TOKENS),
        accepts=tuple(draw.randint(1, _ACCEPTS_MAX) for _ in range(draw.randint(1, 3))),
    )


def free_in(request: Request) -> int:
    """The step in which the row of a request is free, if it waited for none. It gets a token with
    its prompt, in the step behind its arrival. The step behind its last one is planned before it is
    known to be that; if a single token was missing, it was known.
    """
    step, missing = request.arrive, request.max_tokens
    for tokens in chain((1,), cycle(request.accepts)):
        step += 1
        if missing <= tokens:
            break
        missing -= tokens
    return step + (1 if missing == 1 else 2)
