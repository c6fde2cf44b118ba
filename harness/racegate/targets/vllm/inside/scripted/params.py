"""What requests of a scenario are sampled with: seeds, penalties, and all else that a release takes
from a client. All of it leaves the scripted token the only likely one.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from random import Random
from typing import Any

from racegate.scenario.spec import Request
from racegate.targets.common.wire import TEMPERATURE_ONE, UNPENALISED
from racegate.targets.vllm.inside.scripted.thinking import budget_of
from racegate.targets.vllm.wire import ANY, STEPS, ThinkingMode, seed_asked

_NAMED = "logprob_token_ids"  # whose log probabilities a request asks for
SORTS = 4  # of requests that are sampled, by their seeds: what follows its row is another's there
NO_PENALTIES = {"presence_penalty": 0.0, "frequency_penalty": 0.0, "repetition_penalty": 1.0}
NEARLY = 8.5  # makes a token almost as likely as the scripted one
HALF = 0.5  # of what is likely: less than the scripted token alone
SCORED = 200  # and from which on it asks for log probabilities of its prompt's tokens too
ONE_PENALTY = 300  # and from which on it has one penalty again, that of frequency


def refusals() -> tuple[type[Exception], ...]:
    """What a release raises for a request that it does not take."""
    try:
        known = import_module("vllm.exceptions")
    except ImportError:
        return (ValueError,)
    return (ValueError, getattr(known, "VLLMClientError", ValueError))


def params_of(
    request: Request,
    own: range,
    said: Sequence[int],
    *,
    is_drafted: bool,
    thinking: ThinkingMode,
) -> Any:
    """vLLM's sampling parameters: with a seed, penalties and more where there is a temperature.

    own: tokens of the request; said: those that plain decoding gives it, the last of which ends it
    if the scenario says so; is_drafted: the engine speculates, and some are not to be had;
    thinking: whether it may be bounded
    """
    from vllm import SamplingParams

    chosen: dict[str, Any] = dict(budget_of(own, thinking))
    if request.temperature == TEMPERATURE_ONE:
        chosen |= {"seed": request.seed, "top_p": HALF}  # nothing else that changes its logits
    elif request.seed in ANY and request.temperature:
        chosen |= penalties_of(request) | drawn_as(request, own, is_drafted=is_drafted)
    elif request.temperature:
        chosen |= {"seed": request.seed, **penalties_of(request)}
        chosen |= narrowed_as(request.seed % SORTS, own, is_drafted=is_drafted)
        if "min_tokens" in chosen:
            chosen["min_tokens"] = min(chosen["min_tokens"], request.max_tokens)
        chosen |= scored_as(request)
    if "min_p" in chosen and penalties_of(request) == NO_PENALTIES:
        # Likely enough for it before the temperature has scaled the logits, and not behind that.
        chosen["logit_bias"] = {own[1]: NEARLY}
    if request.grammar_modulus:
        from vllm.sampling_params import StructuredOutputsParams

        # A client's end of sequence is what ends a grammar.
        ends = [] if request.stop_after is None else [said[-1]]
        asked = " ".join(map(str, [request.grammar_modulus, request.grammar_turns, *ends]))
        grammar = StructuredOutputsParams(regex=asked)
        grammar._backend = "xgrammar"  # whom validation would have chosen: new releases ask
        chosen["structured_outputs"] = grammar
    if request.stop_after is not None:
        chosen["stop_token_ids"] = [*chosen.get("stop_token_ids", ()), said[-1]]
    if _NAMED not in SamplingParams.__struct_fields__:  # an older release
        chosen.pop(_NAMED, None)
    params = SamplingParams(
        max_tokens=request.max_tokens,
        temperature=request.temperature,
        detokenize=False,
        ignore_eos=True,
        **chosen,
    )
    if 0 < request.temperature < TEMPERATURE_ONE and request.seed % SORTS == 2:
        params._bad_words_token_ids = words_of(own)  # what a tokenizer would have made of words
    return params


def narrowed_as(sort: int, own: range, *, is_drafted: bool) -> dict[str, Any]:
    """What else a request of a sort is sampled with: it leaves the scripted token the only likely
    one too, and differs from row to row.
    """
    narrowed: tuple[dict[str, Any], ...] = (
        {"top_k": 8, "logprobs": 2},
        {"top_p": 0.9, **_at_least(3, own)},
        {"logprobs": 1, "top_k": 16},
        {"allowed_token_ids": list(own), "top_p": 0.8},
    )
    unlike: tuple[dict[str, Any], ...] = (
        {"min_p": 0.1},
        {"logit_bias": {own.start: -1.0}},
        {"min_p": 0.2},
        # Beside drafts runner V1 of 0.33.0 fails at named tokens.
        {**_at_least(2, own), "logprobs": 2, _NAMED: list(own[:2])},
    )
    return narrowed[sort] | ({} if is_drafted else unlike[sort])


def drawn_as(request: Request, own: range, *, is_drafted: bool) -> dict[str, Any]:
    """What a request in ANY is sampled with beside penalties: of all that a client can ask for each
    is there or not, whatever the others are, with values at the edges among them.
    """
    draw = Random(f"narrowed {request.seed}")
    others: dict[str, tuple[Any, ...]] = {
        "top_k": (None, None, 1, 8, 16),
        "top_p": (None, None, HALF, 0.9),
        "logprobs": (None, None, 0, 1, 2, 5),
        "prompt_logprobs": (None, None, None, 0, 1, 2),
        "allowed_token_ids": (None, None, list(own)),
    }
    if not is_drafted:
        others |= {
            "min_p": (None, None, 0.1, 0.2),
            "logit_bias": (None, None, {own.start: -1.0}, {own[1]: -1.0, own[2]: 1.0}),
        }
    chosen = {name: draw.choice(values) for name, values in others.items()}
    chosen["seed"] = seed_asked(request)
    least = draw.choice((0, 0, 1, 3, 6))
    if least:
        chosen |= _at_least(min(least, request.max_tokens), own)
    return {name: value for name, value in chosen.items() if value is not None}


def words_of(own: range) -> list[list[int]]:
    """Words that are never said: one token; and two and three, of which all but the last are said.
    That is no other word's, so that it is forbidden where the word has begun and nowhere else.
    Every eighth token of its own begins two: each word is a program of an interpreted kernel.
    """
    one, two, three = _others(own)
    begun = range(0, len(own), 8)
    pairs = ([own[at], two] for at in begun)
    triples = ([own[at], own[(at + STEPS[0]) % len(own)], three] for at in begun)
    return [*triples, [one], *pairs]  # in no order of their lengths: a client has none


def _at_least(count: int, own: range) -> dict[str, Any]:
    """So many tokens, before which end-of-sequence is forbidden: a token of the first request."""
    return {"min_tokens": count, "stop_token_ids": [_other(own)]} if own.start else {}


def _other(own: range) -> int:
    """Somebody else's token."""
    return _others(own)[0]


def _others(own: range) -> tuple[int, int, int]:
    """Three tokens of somebody else."""
    first = own.start - 3 if own.start else own.stop
    return first + 2, first + 1, first


def penalties_of(request: Request) -> dict[str, float]:
    """Of a request that is sampled."""
    if request.temperature == TEMPERATURE_ONE:
        return NO_PENALTIES
    if request.seed in ANY:
        draw = Random(f"penalties {request.seed}")
        return {
            name: draw.choice((none, none, *(none + tenths / 10 for tenths in (-3, 1, 3, 7))))
            for name, none in NO_PENALTIES.items()
        }
    some = sampled_as(request.seed % SORTS)
    if request.seed >= ONE_PENALTY:
        return NO_PENALTIES | {"frequency_penalty": some["frequency_penalty"]}
    return NO_PENALTIES if request.seed >= UNPENALISED else some


def scored_as(request: Request) -> dict[str, int]:
    """How many log probabilities of each token of its prompt a request asks for that is sampled."""
    return {"prompt_logprobs": 2} if request.seed >= SCORED else {}


def sampled_as(sort: int) -> dict[str, float]:
    """Penalties. They leave the scripted token, almost ten ahead of the others, the only likely one
    at a low temperature. sort: below SORTS
    """
    tenths = sort / 10
    return {
        "presence_penalty": 0.3 + tenths,
        "frequency_penalty": 0.7 - tenths,
        "repetition_penalty": 1.1 + tenths,
    }
