"""Shrinking: a failing scenario and its holds made smaller together, until nothing can be left out.

Greedy passes over simpler candidates, the most promising first; a candidate is kept if the same
failure (by signature) is still there. Holds that a smaller scenario cannot realise are ignored, not
refused, which keeps shrinking monotone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic

import msgspec

from racegate.history.schedule import Holds, Schedule, fewest
from racegate.scenario.expect import Expect
from racegate.scenario.settings import (
    CacheMode,
    DraftSampling,
    EngineSpec,
    GraphMode,
    Layout,
    ModelSpec,
    OutputEvent,
    Planning,
    Zeroing,
)
from racegate.scenario.spec import AnyScenario, Event, OwnScenario, Request, ScenarioError
from racegate.scenario.validation import validate

RUNS_MAX = 300


class Case(msgspec.Struct, Generic[AnyScenario], frozen=True, kw_only=True):
    """What a witness replays."""

    scenario: AnyScenario
    schedule: Schedule


class Shrunk(msgspec.Struct, Generic[AnyScenario], frozen=True, kw_only=True):
    """case: the smallest found; runs: candidates tried; is_minimal: no hold or request can be
    removed.
    """

    case: Case[AnyScenario]
    runs: int
    is_minimal: bool


def shrink(
    case: Case[AnyScenario],
    still_fails: Callable[[Case[AnyScenario]], bool],
    *,
    runs_max: int = RUNS_MAX,
) -> Shrunk[AnyScenario]:
    """The smallest case found that still fails, in at most `runs_max` candidate runs."""
    tried: dict[bytes, bool] = {}

    def fails(candidate: Case[AnyScenario]) -> bool | None:
        """Whether it still does; None if it was not tried and no more may be."""
        key = msgspec.msgpack.encode(candidate)
        if key not in tried:
            if len(tried) >= runs_max:
                return None
            tried[key] = still_fails(candidate)
        return tried[key]

    found: Case[AnyScenario] | None = case
    while found is not None:
        case, is_minimal = _with_fewest_holds(found, fails)
        found = None
        for candidate in _simpler(case):
            is_failing = fails(candidate)
            if is_failing is None:
                return Shrunk(case=case, runs=len(tried), is_minimal=False)
            if is_failing:
                found = candidate
                break
    return Shrunk(case=case, runs=len(tried), is_minimal=is_minimal)


def _with_fewest_holds(
    case: Case[AnyScenario], fails: Callable[[Case[AnyScenario]], bool | None]
) -> tuple[Case[AnyScenario], bool]:
    def under(holds: Holds) -> Case[AnyScenario]:
        return msgspec.structs.replace(case, schedule=Schedule(holds=holds))

    holds, is_minimal = fewest(case.schedule.holds, lambda holds: fails(under(holds)))
    return under(holds), is_minimal


def _simpler(case: Case[AnyScenario]) -> Iterator[Case[AnyScenario]]:
    """Simpler scenarios: fewer requests and events first, then smaller numbers."""
    for scenario in _simpler_scenarios(case.scenario):
        try:
            validate(scenario)
        except ScenarioError:
            continue
        yield msgspec.structs.replace(case, scenario=scenario)


def _simpler_scenarios(scenario: AnyScenario) -> Iterator[AnyScenario]:
    yield from _fewer_requests(scenario)
    for index in range(len(scenario.events)):
        rest = scenario.events[:index] + scenario.events[index + 1 :]
        yield msgspec.structs.replace(scenario, events=rest)
    if scenario.expect != Expect():
        yield msgspec.structs.replace(scenario, expect=Expect())
    yield from _shorter_runs(scenario)
    for requests in _with_a_simpler(scenario.requests):
        yield msgspec.structs.replace(scenario, requests=requests)
    yield from _simpler_settings(scenario)


def _simpler_settings(scenario: AnyScenario) -> Iterator[AnyScenario]:
    """Of our own engine, if the scenario has any."""
    if not isinstance(scenario, OwnScenario):
        return
    for change in _simpler_engines(scenario.engine):
        simpler = msgspec.structs.replace(scenario.engine, **change)
        yield msgspec.structs.replace(scenario, engine=simpler)
    if scenario.model.has_mrope:
        model = msgspec.structs.replace(scenario.model, mrope_section=())
        yield msgspec.structs.replace(scenario, model=model)
    plain = msgspec.structs.replace(scenario.model, **_PLAIN)
    if plain != scenario.model:
        yield msgspec.structs.replace(scenario, model=plain)


# Layers without what those of real models have beside the bare formulas.
_PLAIN = {
    name: getattr(ModelSpec(), name)
    for name in ("kv_heads", "key_heads", "groups", "rotary_size", "mlp_size", "parts")
}


def _fewer_requests(scenario: AnyScenario) -> Iterator[AnyScenario]:
    for request in scenario.requests:
        rest = tuple(other for other in scenario.requests if other is not request)
        if rest:
            events = tuple(event for event in scenario.events if not _concerns(event, request.name))
            yield msgspec.structs.replace(scenario, requests=rest, events=events)


def _with_a_simpler(requests: tuple[Request, ...]) -> Iterator[tuple[Request, ...]]:
    for index, request in enumerate(requests):
        for simpler in _simpler_requests(request):
            yield (*requests[:index], simpler, *requests[index + 1 :])


def _concerns(event: Event, name: str) -> bool:
    return name == getattr(event, "request", None) or name in getattr(event, "requests", ())


def _shorter_runs(scenario: AnyScenario) -> Iterator[AnyScenario]:
    """Fewer steps: a run that stops behind the failure is easier to read."""
    latest = max(request.arrive for request in scenario.requests)
    latest = max([latest, *(event.step for event in scenario.events)])
    for steps in (latest + 1, scenario.steps_max // 2, scenario.steps_max - 1):
        if latest < steps < scenario.steps_max:
            yield msgspec.structs.replace(scenario, steps_max=steps)


def _simpler_requests(request: Request) -> Iterator[Request]:
    def other(**values: object) -> Request:
        return msgspec.structs.replace(request, **values)

    if request.temperature:
        yield other(temperature=0.0)
    if request.stop_after is not None:
        yield other(stop_after=None)
    if request.stop_token is not None:
        yield other(stop_token=None)
    if request.grammar_modulus:
        yield other(grammar_modulus=0, grammar_turns=0)
    if request.grammar_turns:
        yield other(grammar_turns=0)
    for index in range(len(request.images)):
        yield other(images=request.images[:index] + request.images[index + 1 :])
    for length in _smaller(len(request.prompt), 1):
        yield other(prompt=request.prompt[:length])
    for tokens in _smaller(request.max_tokens, 1):
        stop = request.stop_after
        yield other(max_tokens=tokens, stop_after=None if stop is None else min(stop, tokens))
    for step in _smaller(request.arrive, 0):
        yield other(arrive=step)
    for length in _smaller(len(request.accepts), 1):
        yield other(accepts=request.accepts[:length])
    for index, count in enumerate(request.accepts):
        for fewer in _smaller(count, 1):
            accepts = (*request.accepts[:index], fewer, *request.accepts[index + 1 :])
            yield other(accepts=accepts)


def _simpler_engines(engine: EngineSpec) -> list[dict[str, object]]:
    """Changes that each make it simpler, and none that carries prefixes in another way."""
    changes: list[dict[str, object]] = []
    if engine.cache_mode is not CacheMode.NONE:
        changes.append({"cache_mode": CacheMode.NONE})
    if engine.prefixes_max is not None:
        changes.append({"prefixes_max": None})
    if engine.failing_loads:
        changes.append({"failing_loads": ()})
    if engine.zeroing is not Zeroing.NONE:
        changes.append({"zeroing": Zeroing.NONE})
    if engine.planning is not Planning.INLINE:
        changes.append({"planning": Planning.INLINE})
    if engine.layout is not Layout.ROWS:
        changes.append({"layout": Layout.ROWS})
    if engine.output_event is not OutputEvent.AFTER_DRAFTER:
        changes.append({"output_event": OutputEvent.AFTER_DRAFTER})
    if engine.ranks > 1:
        changes.append({"ranks": 1})
    if engine.draws_drafts:
        changes.append({"draft_sampling": DraftSampling.GREEDY})
    changes += _simpler_graphs(engine)
    changes += [{"depth": depth} for depth in _smaller(engine.depth, 2)]
    changes += [{"draft_len_max": k} for k in _smaller(engine.draft_len_max, 1)]
    return changes


def _simpler_graphs(engine: EngineSpec) -> list[dict[str, object]]:
    """No graphs, else one graph, the smallest first; without graphs their sizes mean nothing."""
    if engine.graph_mode is GraphMode.EAGER:
        return []
    sizes = engine.capture_rows
    fewer = [(size,) for size in sizes] if len(sizes) > 1 else [(n,) for n in _smaller(sizes[0], 1)]
    changes: list[dict[str, object]] = [{"graph_mode": GraphMode.EAGER}]
    changes.extend({"capture_rows": rows} for rows in fewer)
    return changes


def _smaller(value: int, least: int) -> Iterator[int]:
    """The least value, half way, one less."""
    seen = {value}
    for candidate in (least, (value + least) // 2, value - 1):
        if least <= candidate < value and candidate not in seen:
            seen.add(candidate)
            yield candidate
