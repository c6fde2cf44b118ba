"""Requests and events of a generated scenario, as its themes want them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from racegate.explore.swarm import Pick, Theme, Themes, one_of
from racegate.scenario.settings import EngineSpec
from racegate.scenario.spec import (
    Abort,
    Budget,
    DraftLimit,
    Dummy,
    Event,
    Gap,
    Image,
    Preempt,
    Request,
    Rotate,
)

STEP_LAST = 14  # of events and arrivals: later ones would often meet an idle engine
TURN_TOKENS_MAX = 8


def draw_requests(
    pick: Pick, themes: Themes, engine: EngineSpec, *, vocab_size: int
) -> tuple[Request, ...]:
    """One to eight requests."""
    least = 5 if Theme.CROWD in themes else 3 if Theme.REPEAT in themes else 1
    count = least + pick(4)
    again = one_of(pick, (4, 8, 12, 18))  # when prompts come again
    requests: list[Request] = []
    for index in range(count):
        prompt = _fresh(pick, themes, engine, vocab_size)
        arrive = _arrival(pick, themes, again)
        if index > 0 and Theme.TURNS in themes and pick(2):
            prompt, arrive = _next_turn(pick, requests[0], engine)
        elif index > 1 and Theme.REPEAT in themes and pick(3):
            prompt, arrive = _repeated(pick, one_of(pick, requests).prompt, prompt), again
        prompt = prompt[: engine.model_len_max - 1]
        request = _request(pick, themes, engine, prompt, vocab_size=vocab_size)
        if index == 0 and Theme.TURNS in themes:
            request = _first_turn(request)
        requests.append(msgspec.structs.replace(request, name=f"R{index}", arrive=arrive))
    return tuple(requests)


def _fresh(pick: Pick, themes: Themes, engine: EngineSpec, vocab_size: int) -> tuple[int, ...]:
    """A prompt of its own."""
    k, edge, interval = engine.draft_len_max, engine.block_size, engine.state_interval
    lengths: tuple[int, ...] = (1, k + 1, k + 2, edge, edge - 1, edge + 1, 7, 13, 20)
    if Theme.CHUNKS in themes:
        lengths = (k + 1, interval + k + 1, 2 * (k + 1), 3 * (k + 1) + 1)
    elif Theme.REPEAT in themes:
        lengths = (interval + 1, 2 * interval + 1, 2 * interval, 13, 20)
    return tuple(pick(vocab_size) for _ in range(one_of(pick, lengths)))


def _arrival(pick: Pick, themes: Themes, again: int) -> int:
    if Theme.CROWD in themes:
        return one_of(pick, (0, 0, 0, 1, 2))
    if Theme.REPEAT in themes:
        return one_of(pick, (0, 1, again - 1, again))
    return one_of(pick, (0, 0, 1, 2, 4, 7, 11))


def _repeated(pick: Pick, earlier: tuple[int, ...], own: tuple[int, ...]) -> tuple[int, ...]:
    """The whole of an earlier prompt, or as much of it as there are tokens, and more behind it."""
    if pick(2):
        return earlier
    shared = min(len(earlier), len(own))
    return earlier[:shared] + own[shared:]


def _first_turn(request: Request) -> Request:
    """The request with outputs that are known beforehand: with two tokens, they take turns."""
    return msgspec.structs.replace(
        request,
        max_tokens=min(request.max_tokens, TURN_TOKENS_MAX),
        stop_after=None,
        stop_token=None,
        temperature=0.0,
        grammar_modulus=2,
    )


def _next_turn(pick: Pick, first: Request, engine: EngineSpec) -> tuple[tuple[int, ...], int]:
    """The first turn's prompt and some of its outputs, and when it has ended."""
    tokens = one_of(pick, (first.max_tokens, 1 + pick(first.max_tokens)))
    more = tuple((first.prompt[-1] + 1 + i) % 2 for i in range(tokens))
    return first.prompt + more, first.arrive + engine.depth + 2 + first.max_tokens


def _request(
    pick: Pick, themes: Themes, engine: EngineSpec, prompt: tuple[int, ...], *, vocab_size: int
) -> Request:
    """How a prompt is continued; its name and arrival are given later."""
    max_tokens = _max_tokens(pick, themes, engine.model_len_max - len(prompt))
    stop_after = stop_token = None
    if Theme.STOPS in themes:
        stop_after = one_of(pick, (None, 1 + pick(max_tokens)))
        stop_token = one_of(pick, (None, pick(vocab_size)))
    moduli = tuple(m for m in (0, 2, 5) if m <= vocab_size)
    return Request(
        name="",
        arrive=0,
        prompt=prompt,
        max_tokens=max_tokens,
        stop_after=stop_after,
        stop_token=stop_token,
        accepts=_accepts(pick, themes, engine.draft_len_max),
        temperature=one_of(pick, (0.0, 0.7, 1.0)) if Theme.RANDOM in themes else 0.0,
        seed=pick(1 << 16),
        grammar_modulus=one_of(pick, moduli) if Theme.GRAMMAR in themes else 0,
    )


def draw_images(pick: Pick, prompt_len: int) -> tuple[Image, ...]:
    """None, or one or two in a prompt that holds them."""
    images: list[Image] = []
    end = 0
    for _ in range(pick(3)):
        grid = one_of(pick, ((1, 1, 2), (1, 2, 2), (2, 1, 1), (1, 2, 3), (2, 2, 2)))
        image = Image(start=end + pick(3), grid=grid)
        if image.start + image.tokens < prompt_len:
            images.append(image)
            end = image.start + image.tokens
    return tuple(images)


def _max_tokens(pick: Pick, themes: Themes, most: int) -> int:
    """At most so many; all of them, or very few, if the theme is that."""
    options = [min(most, 1 + pick(14))]
    if Theme.SHORT in themes:
        options.append(min(most, 1 + pick(3)))
    if Theme.LONG in themes:
        options.append(most)
    return one_of(pick, options)


def _accepts(pick: Pick, themes: Themes, k: int) -> tuple[int, ...]:
    options = [tuple(1 + pick(1 + k) for _ in range(1 + pick(5)))]
    if Theme.REJECT in themes:
        options.append((1,))
    if Theme.ACCEPT in themes:
        options += [(1 + k,)] * 2
    return one_of(pick, options)


def draw_events(
    pick: Pick, themes: Themes, engine: EngineSpec, requests: Sequence[Request]
) -> tuple[Event, ...]:
    """One to three of each kind that is a theme; none twice for one step and request."""
    events: dict[tuple[type, int, str | None], Event] = {}
    for theme, draw in _DRAWN.items():
        if theme in themes:
            for _ in range(1 + pick(3)):
                for event in draw(pick, engine, requests):
                    key = (type(event), event.step, getattr(event, "request", None))
                    events.setdefault(key, event)
    return tuple(events.values())


Draw = Callable[[Pick, EngineSpec, Sequence[Request]], Iterator[Event]]


def _step(pick: Pick, request: Request) -> int:
    """A step in which a request is likely to run."""
    return request.arrive + 1 + pick(6)


def _preempts(pick: Pick, engine: EngineSpec, requests: Sequence[Request]) -> Iterator[Event]:
    """One request, or two at once; perhaps again when it may have come back."""
    request = one_of(pick, requests)
    step = _step(pick, request)
    yield Preempt(step=step, request=request.name)
    if pick(2):
        yield Preempt(step=step + engine.depth + pick(4), request=request.name)
    if pick(2):
        yield Preempt(step=step, request=one_of(pick, requests).name)


def _aborts(pick: Pick, engine: EngineSpec, requests: Sequence[Request]) -> Iterator[Event]:
    """Any but the first, which always runs; perhaps while it waits to resume."""
    if len(requests) > 1:
        request = one_of(pick, requests[1:])
        step = one_of(pick, (_step(pick, request), request.arrive, request.arrive + pick(4)))
        yield Abort(step=step, request=request.name)
        if pick(3) == 2:
            yield Preempt(step=step, request=request.name)


def _gaps(pick: Pick, engine: EngineSpec, requests: Sequence[Request]) -> Iterator[Event]:
    request = one_of(pick, requests)
    yield Gap(step=_step(pick, request), request=request.name, steps=1 + pick(2))


def _budgets(pick: Pick, engine: EngineSpec, requests: Sequence[Request]) -> Iterator[Event]:
    tokens = one_of(pick, (0, 1 + pick(8)))
    yield Budget(step=1 + pick(STEP_LAST), tokens=min(engine.tokens_per_step_max, tokens))


def _limits(pick: Pick, engine: EngineSpec, requests: Sequence[Request]) -> Iterator[Event]:
    request = one_of(pick, requests)
    drafts = pick(1 + engine.draft_len_max)
    yield DraftLimit(step=_step(pick, request), request=request.name, drafts=drafts)


def _rotations(pick: Pick, engine: EngineSpec, requests: Sequence[Request]) -> Iterator[Event]:
    """Two or three requests that come one after another, in two consecutive steps."""
    if len(requests) > 1:
        ordered = sorted(requests, key=lambda request: request.arrive)
        count = 2 + pick(min(2, len(requests) - 1))
        first = pick(len(requests) + 1 - count)
        named = ordered[first : first + count]
        step = named[-1].arrive + 1 + pick(4)
        for further in range(2):
            yield Rotate(step=step + further, requests=tuple(r.name for r in named))


def _dummies(pick: Pick, engine: EngineSpec, requests: Sequence[Request]) -> Iterator[Event]:
    rows = 1 + pick(min(engine.rows_max, engine.tokens_per_step_max))
    yield Dummy(step=1 + pick(STEP_LAST), rows=rows)


_DRAWN: dict[Theme, Draw] = {
    Theme.LIMIT: _limits,
    Theme.GAP: _gaps,
    Theme.BUDGET: _budgets,
    Theme.PREEMPT: _preempts,
    Theme.DUMMY: _dummies,
    Theme.ABORT: _aborts,
    Theme.ROTATE: _rotations,
}
