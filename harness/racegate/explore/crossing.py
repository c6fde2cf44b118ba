"""Crossing: a scenario with some of what another has (settings, requests, events), fitted so that
it is possible. By it a scenario is led to features that few of thousands of draws have together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from random import Random

import msgspec

from racegate.scenario.settings import DrafterKind, DraftSampling, EngineSpec, Numerics, StateLife
from racegate.scenario.spec import Budget, Dummy, Event, OwnScenario, Request, Rotate
from racegate.scenario.validation import validate

PARTS_MAX = 3  # that are taken at once
REQUESTS_MAX = 8
Change = Callable[[OwnScenario], OwnScenario]


def crossed(first: OwnScenario, second: OwnScenario, random: Random) -> OwnScenario:
    """The first one with a few parts of the second. Raises ScenarioError if that is impossible."""
    changes = list(_changes(first, second, random))
    taken = random.sample(changes, min(len(changes), 1 + random.randrange(PARTS_MAX)))
    child = first
    for change in taken:
        child = change(child)
    return fitted(child)


def in_numerics(scenario: OwnScenario, numerics: Numerics) -> OwnScenario:
    """The same scenario in float or exact. Floats have states that last, as in the generator."""
    changes: dict[str, object] = {"numerics": numerics}
    if numerics is Numerics.FLOAT32:
        changes |= {"state_size": 16, "state_life": StateLife.LONG}
    model = msgspec.structs.replace(scenario.model, **changes)
    return msgspec.structs.replace(scenario, model=model)


def _changes(first: OwnScenario, second: OwnScenario, random: Random) -> Iterator[Change]:
    for table in ("model", "engine"):
        for name in getattr(second, table).__struct_fields__:
            value = getattr(getattr(second, table), name)
            if value != getattr(getattr(first, table), name):
                yield _setting(table, name, value)
    yield partial(_replaced, requests=second.requests, events=second.events)
    for _ in range(PARTS_MAX):
        yield partial(_with_request, request=random.choice(second.requests), events=second.events)
        if second.events:
            yield partial(_with_event, event=random.choice(second.events))


def _replaced(
    one: OwnScenario, *, requests: tuple[Request, ...], events: tuple[Event, ...]
) -> OwnScenario:
    return msgspec.structs.replace(one, requests=requests, events=events)


def _with_event(one: OwnScenario, *, event: Event) -> OwnScenario:
    return msgspec.structs.replace(one, events=(*one.events, event))


def _setting(table: str, name: str, value: object) -> Change:
    def change(one: OwnScenario) -> OwnScenario:
        settings = msgspec.structs.replace(getattr(one, table), **{name: value})
        return msgspec.structs.replace(one, **{table: settings})

    return change


def _with_request(one: OwnScenario, *, request: Request, events: tuple[Event, ...]) -> OwnScenario:
    """One more request, with what happens to it; in the place of the last one of many."""
    name = f"R{len(one.requests)}"
    if len(one.requests) >= REQUESTS_MAX:
        name = one.requests[-1].name
    kept = tuple(other for other in one.requests if other.name != name)
    own = tuple(
        msgspec.structs.replace(event, request=name)
        for event in events
        if getattr(event, "request", None) == request.name
    )
    added = msgspec.structs.replace(request, name=name)
    return msgspec.structs.replace(one, requests=(*kept, added), events=(*one.events, *own))


def fitted(one: OwnScenario) -> OwnScenario:
    """Settings that agree, requests for which there is room, events of requests that exist. Raises
    ScenarioError if the scenario is not possible even so.
    """
    engine = _agreeing(one.engine)
    one = msgspec.structs.replace(one, engine=engine)
    requests = tuple(_fitting(request, one) for request in one.requests)
    names = {request.name for request in requests}
    events: dict[tuple[type, int, str | None], Event] = {}
    for event in one.events:
        named = set(getattr(event, "requests", ())) | {getattr(event, "request", None)} - {None}
        if named <= names and not (isinstance(event, Rotate) and engine.layout == "slots"):
            key = (type(event), event.step, getattr(event, "request", None))
            events.setdefault(key, _bounded(event, engine))
    return validate(msgspec.structs.replace(one, requests=requests, events=tuple(events.values())))


def _agreeing(engine: EngineSpec) -> EngineSpec:
    k, sampling = engine.draft_len_max, engine.draft_sampling
    if engine.drafter is DrafterKind.NONE:
        k = 0
    elif engine.drafter is DrafterKind.EXTRACT_HIDDEN_STATES:
        k = 1
    if engine.drafter is not DrafterKind.MTP:
        sampling = DraftSampling.GREEDY
    least = engine.state_interval if engine.cache_mode.has_columns else 1
    return msgspec.structs.replace(
        engine,
        draft_len_max=k if engine.drafter is DrafterKind.NONE else max(1, k),
        draft_sampling=sampling,
        tokens_per_step_max=max(least, engine.tokens_per_step_max),
        prefill_chunk_max=max(least, engine.prefill_chunk_max),
    )


def _fitting(request: Request, one: OwnScenario) -> Request:
    """Tokens of the vocabulary, and as many as the model allows."""
    vocab_size, model_len_max = one.model.vocab_size, one.engine.model_len_max
    prompt = tuple(token % vocab_size for token in request.prompt[: model_len_max - 1])
    max_tokens = min(request.max_tokens, model_len_max - len(prompt))
    stop, token = request.stop_after, request.stop_token
    fits = one.model.has_mrope and all(
        image.start + image.tokens < len(prompt) for image in request.images
    )
    return msgspec.structs.replace(
        request,
        prompt=prompt,
        max_tokens=max_tokens,
        stop_after=None if stop is None else min(stop, max_tokens),
        stop_token=None if token is None else token % vocab_size,
        grammar_modulus=min(request.grammar_modulus, vocab_size),
        images=request.images if fits else (),
    )


def _bounded(event: Event, engine: EngineSpec) -> Event:
    if isinstance(event, Budget):
        return msgspec.structs.replace(event, tokens=min(event.tokens, engine.tokens_per_step_max))
    if isinstance(event, Dummy):
        most = min(engine.rows_max, engine.tokens_per_step_max)
        return msgspec.structs.replace(event, rows=min(event.rows, most))
    return event
