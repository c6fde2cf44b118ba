"""Values as they were observed, brought into the form in which they are compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from racegate.scenario.spec import Request
from racegate.targets.common.inside.watch import Seen, Values
from racegate.targets.vllm.inside.truth.course import RequestStep
from racegate.targets.vllm.wire import TOKENS_MAX, ProposerKind, adapter_of, seed_asked

# What sampling is asked for besides a temperature and a seed, where there is a temperature.
Penalties = Callable[[Request], dict[str, float]]
NO_PENALTIES = {"presence_penalties": 0.0, "frequency_penalties": 0.0, "repetition_penalties": 1.0}
_OF_DRAFTERS = ("inputs of the drafter", "drafts")
_ABSENT = "absent"  # a value that is not there at all


def shown(used: Any) -> Any:
    """A value as it can be told: what is not there has a word, and a flag is a number."""
    if isinstance(used, list):
        return [shown(one) for one in used]
    if isinstance(used, bool):
        return int(used)
    return _ABSENT if used is None else used


def entry(values: Sequence[Any], place: int) -> Any:
    """A value of a list that may be too short, or not hold places at all."""
    return values[place] if 0 <= place < len(values) else None


def in_rows(values: Values) -> Values:
    """Tensors by the places of requests, as lists by row. index: the place of each row"""
    index: Any = values.get("index")
    if index is None:
        return values
    lists: dict[str, Any] = {key: one for key, one in values.items() if key != "rows"}
    by_place = {key: flat(one) for key, one in lists.items() if key in ("last", "prompt")}
    return {**values, **{key: [entry(one, at) for at in index] for key, one in by_place.items()}}


def flat(values: list[Any]) -> list[Any]:
    """Of [places], [places, 1] or [1, places], the list by place."""
    if len(values) == 1 and isinstance(values[0], list):
        return list(values[0])
    return [one[0] if isinstance(one, list) else one for one in values]


def with_next(values: Values, rows: Sequence[RequestStep]) -> Values:
    """The token that the drafter goes on from: the last one, or the prompt's next of a chunk."""
    last: Any = values.get("last")
    prompt: Any = values.get("prompt")
    if last is None or prompt is None:
        return values
    found = [entry(last if row.accepted else prompt, at) for at, row in enumerate(rows)]
    return {**values, "next": found}


def listed(used: Any, rows: Sequence[RequestStep]) -> list[Any]:
    """Values by row, as they were asked for, not as 32 bits hold them."""
    if isinstance(used, dict):
        used = [used.get(row.request) for row in rows]
    if not isinstance(used, list):
        return []
    return [round(one, 6) if isinstance(one, float) else one for one in used]


def temperature(request: Request) -> float:
    """What the request asks for."""
    return request.temperature


def seed(request: Request) -> int | None:
    """What the request asks for; None where nothing is drawn, or with whatever seed."""
    return seed_asked(request) if request.temperature else None


def penalty(asked: Penalties, name: str, request: Request) -> float:
    """That of this name, as a request's row has it."""
    if not request.temperature:
        return NO_PENALTIES[name]
    return round(asked(request)[name.replace("penalties", "penalty")], 6)


def has_penalties(asked: Penalties, request: Request) -> bool:
    """Whether what a request has said changes its logits."""
    return any(penalty(asked, name, request) != usual for name, usual in NO_PENALTIES.items())


def below_most(length: int) -> int | None:
    """A length or place in a request; at the last one releases go on in ways of their own."""
    return length if length < TOKENS_MAX else None


def has_dimensions(positions: Any) -> bool:
    """Whether each position has three numbers, one in each list of them."""
    return isinstance(positions, list) and bool(positions) and isinstance(positions[0], list)


def run_places(row: RequestStep) -> list[int]:
    """Of the tokens that are run."""
    return list(range(row.start, row.end))


def computed_places(row: RequestStep) -> list[int]:
    """Of the tokens that are run, but for rejected drafts."""
    return list(range(row.start, row.computed))


def adapter_by_token(row: RequestStep) -> list[int]:
    """The request's adapter, for each token that is run."""
    return [adapter_of(row.index)] * row.tokens


def adapter_slots(ids: Sequence[int | None], row: RequestStep) -> list[int]:
    """The slot of the request's adapter, for each token; -1 for none, and none of all slots if it
    should be loaded and is not. ids: by slot
    """
    number = adapter_of(row.index)
    slot = ids.index(number) if number in ids else len(ids)
    return [slot if number else -1] * row.tokens


def is_drafted(row: RequestStep) -> bool | None:
    """A row that begins may be padded as if it had drafts, and is told as one in some releases."""
    return None if row.is_new or not row.drafts else True


def forbidden(request: Request, place: int, before: int | None, size: int) -> list[int] | None:
    """How many tokens of a vocabulary a request's grammar forbids at a place, and their sum; None
    if nobody knows: behind a request's last token what is sampled is thrown away. before: the token
    in front of the place
    """
    modulus = request.grammar_modulus
    if not modulus or place == len(request.prompt):  # the first token may be any
        return [0, 0]
    if before is None or place >= len(request.prompt) + request.tokens_most:
        return None
    tokens = range(before % modulus, size, modulus)
    return [len(tokens), sum(tokens)]


def judged_by(seen: Iterable[Seen], drafter: ProposerKind) -> Iterator[Seen]:
    """Observations of which a truth is known: not those of a drafter that is given tokens alone,
    whose passes are unlike the model's. They follow the model's in a step.
    """
    drafting = -1
    for step, name, values in seen:
        if name == "inputs of the model":
            drafting = step
        is_its = name in _OF_DRAFTERS or (name == "attention" and step == drafting)
        if drafter is not ProposerKind.MODEL or not is_its:
            yield step, name, values
