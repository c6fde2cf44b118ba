"""Plain decoding: what every engine must deliver (DEFINITION section 3)."""

from __future__ import annotations

from racegate.scenario.spec import Request, Scenario
from racegate_reference.model import build_model
from racegate_reference.paths import Path


def truth(scenario: Scenario) -> dict[str, tuple[int, ...]]:
    """Each request's tokens, prompt included, continued to model_len_max + k + 2 tokens."""
    model = build_model(scenario.model)
    length = scenario.engine.model_len_max + scenario.engine.draft_len_max + 2
    return {request.name: Path(model, request).tokens(0, length) for request in scenario.requests}


def plain_decode(scenario: Scenario, request: Request) -> tuple[int, ...]:
    """The tokens delivered for a request that is neither aborted nor cut off."""
    first = len(request.prompt)
    path = Path(build_model(scenario.model), request)
    last = first
    while not is_last(request, path.token(last), count=last + 1 - first):
        last += 1
    return path.tokens(first, last + 1)


def is_last(request: Request, token: int, *, count: int) -> bool:
    """Whether the request finishes with this token, the count-th that is delivered."""
    return count == request.max_tokens or is_stop(request, token, count=count)


def is_stop(request: Request, token: int, *, count: int) -> bool:
    """Whether the request stops by itself with this token, the count-th that is delivered."""
    return count == request.stop_after or token == request.stop_token
