"""Plain decoding: what every engine must deliver (DEFINITION section 3)."""

from __future__ import annotations

from racegate.scenario import Request, Scenario
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
    return path.tokens(first, first + output_len(request))


def output_len(request: Request) -> int:
    """How many tokens are delivered before the request finishes."""
    return request.max_tokens if request.stop_after is None else request.stop_after
