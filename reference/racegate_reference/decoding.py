"""Plain decoding: what every engine must deliver (DEFINITION section 3)."""

from __future__ import annotations

from racegate.scenario.spec import OwnScenario, Request
from racegate_reference.paths import Paths


def truth(scenario: OwnScenario, *, paths: Paths | None = None) -> dict[str, tuple[int, ...]]:
    """Each request's tokens, prompt included, all continued to the same length: as far as a drafter
    can look. paths: where they are looked up, and kept.
    """
    keeper = Paths() if paths is None else paths
    length = _reach(scenario)
    return {
        request.name: keeper.path(scenario.model, request).tokens(0, length)
        for request in scenario.requests
    }


def _reach(scenario: OwnScenario) -> int:
    """How many tokens of a request matter: what it can deliver, what every step in flight adds to
    that in the scheduler's optimism, and the drafts behind it; at most model_len_max and those.
    """
    engine = scenario.engine
    longest = max((len(r.prompt) + r.max_tokens for r in scenario.requests), default=0)
    in_flight = engine.depth * (1 + engine.draft_len_max)
    return min(engine.model_len_max, longest + in_flight) + engine.draft_len_max + 2


def plain_decode(
    scenario: OwnScenario, request: Request, *, paths: Paths | None = None
) -> tuple[int, ...]:
    """The tokens delivered for a request that is neither aborted nor cut off."""
    first = len(request.prompt)
    path = (Paths() if paths is None else paths).path(scenario.model, request)
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
