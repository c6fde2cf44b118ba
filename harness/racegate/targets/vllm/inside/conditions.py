"""What a scenario asks of the engine beside its requests' arrivals: few blocks, steps without
drafts, sampling with seeds and penalties, grammars. All of it through the release's own code.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from itertools import count
from typing import Any

import torch

from racegate.scenario.spec import Budget, DraftLimit, Request, Scenario
from racegate.targets.common.inside.fields import name_of
from racegate.targets.common.wire import PENALISED, TEMPERATURE_ONE, UNPENALISED
from racegate.targets.vllm.inside.scripted.model import VOCAB
from racegate.targets.vllm.inside.scripted.thinking import budget_of
from racegate.targets.vllm.inside.watch import RunnerWatch
from racegate.targets.vllm.wire import MODULUS_MAX, STEPS, ThinkingMode

_NAMED = "logprob_token_ids"  # whose log probabilities a request asks for
SORTS = 4  # of requests that are sampled, by their seeds: what follows its row is another's there
# Whatever applies them to logits.
_PENALISING = (
    ("vllm.v1.sample.sampler", "apply_all_penalties"),
    ("vllm.v1.sample.rejection_sampler", "apply_all_penalties"),
    ("vllm.v1.worker.gpu.sample.penalties", "apply_penalties"),
)
_BITS = 32  # tokens of one word of a mask
NO_PENALTIES = {"presence_penalty": 0.0, "frequency_penalty": 0.0, "repetition_penalty": 1.0}
HALF = 0.5  # of what is likely: less than the scripted token alone
SCORED = 200  # and from which on it asks for log probabilities of its prompt's tokens too
ONE_PENALTY = 300  # and from which on it has one penalty again, that of frequency


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
    elif request.temperature:
        chosen |= {"seed": request.seed, **penalties_of(request)}
        chosen |= narrowed_as(request.seed % SORTS, own, is_drafted=is_drafted)
        if "min_tokens" in chosen:
            chosen["min_tokens"] = min(chosen["min_tokens"], request.max_tokens)
        chosen |= scored_as(request)
    if request.grammar_modulus:
        from vllm.sampling_params import StructuredOutputsParams

        grammar = StructuredOutputsParams(regex=str(request.grammar_modulus))
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


def words_of(own: range) -> list[list[int]]:
    """Words that are never said: one token; and two and three, of which all but the last are said.
    That is no other word's, so that it is forbidden where the word has begun and nowhere else.
    Every eighth token of its own begins two: each word is a program of an interpreted kernel.
    """
    one, two, three = _others(own)
    begun = range(0, len(own), 8)
    pairs = ([own[at], two] for at in begun)
    triples = ([own[at], own[(at + STEPS[0]) % len(own)], three] for at in begun)
    return [[one], *pairs, *triples]


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


def leave_blocks(scheduler: Any, scenario: Scenario) -> None:
    """The pool has as many free blocks as the scenario says, if it says fewer than there are: the
    others are taken, as another user of the memory would.
    """
    if scenario.free_blocks is not None:
        pool = scheduler.kv_cache_manager.block_pool
        pool.get_new_blocks(max(0, pool.get_num_free_blocks() - scenario.free_blocks))


class StepLimits:
    """What a scenario leaves the scheduler in a step: tokens, and drafts of requests."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._tokens_most: int = scheduler.max_num_scheduled_tokens

    def set(self, scenario: Scenario, step: int, *, is_plain: bool) -> None:
        """For this step. is_plain: it never finds drafts"""
        events = (event for event in scenario.events if isinstance(event, Budget))
        tokens = {event.step: event.tokens for event in events}
        most = min(self._tokens_most, tokens.get(step, self._tokens_most))
        scheduler: Any = self._scheduler
        scheduler.max_num_scheduled_tokens = most
        limit_drafts(scheduler, scenario, step, is_plain=is_plain)


def limit_drafts(scheduler: Any, scenario: Scenario, step: int, *, is_plain: bool) -> None:
    """In this step the scheduler finds fewer drafts, as if the drafter had found none.

    is_plain: it never finds any
    """
    limits = {
        event.request: event.drafts
        for event in scenario.events
        if isinstance(event, DraftLimit) and event.step == step
    }
    for identity, request in scheduler.requests.items():
        drafts = 0 if is_plain else limits.get(name_of(identity))
        if drafts is not None:
            request.spec_token_ids = list(request.spec_token_ids)[:drafts]


def throttle_prefills(core: Any, interval: int) -> None:
    """As an engine of several ranks of data parallelism: only every so manieth call of its step
    admits prefills; all do if it is 0. Raises RuntimeError if the release has nothing of the kind.
    """
    if not interval:
        return
    if not hasattr(core, "_should_throttle_prefills"):
        raise RuntimeError("this release does not throttle prefills")
    calls = count()
    core._should_throttle_prefills = lambda: next(calls) % interval != 0


def watch_conditions(
    watch: RunnerWatch, scheduler: Any, scheduled: Any, prompts: dict[str, int]
) -> None:
    """Counts, as a step begins, what it exercises. prompts: lengths by request"""
    counters, drafts = watch.counters, scheduled.scheduled_spec_decode_tokens
    if scheduled.total_num_scheduled_tokens == scheduler.max_num_scheduled_tokens:
        running = [request.request_id for request in scheduler.running]
        counters["gaps"] += sum(one not in scheduled.num_scheduled_tokens for one in running)
    new = scheduled.scheduled_new_reqs
    counters["prefix_hits"] += sum(request.num_computed_tokens > 0 for request in new)
    cached = scheduled.scheduled_cached_reqs
    for identity, computed in zip(cached.req_ids, cached.num_computed_tokens, strict=True):
        is_decode = computed >= prompts.get(name_of(identity), computed + 1)
        counters["zero_draft_rows"] += is_decode and not drafts.get(identity)


def watch_penalties(watch: RunnerWatch) -> None:
    """Counts how often logits are changed by penalties."""

    def counted(plain: Any) -> Any:
        def apply(*args: Any, **kwargs: Any) -> Any:
            watch.counters[PENALISED] += 1
            return plain(*args, **kwargs)

        return apply

    for path, name in _PENALISING:
        with suppress(ImportError, AttributeError):  # of the other runner, or of other releases
            module = import_module(path)
            setattr(module, name, counted(getattr(module, name)))


class ModulusGrammar:
    """Forbids tokens that are congruent to the one before them."""

    def __init__(self, watch: RunnerWatch, modulus: int) -> None:
        self._watch = watch
        self._modulus = modulus
        self._tokens: list[int] = []

    def _allows(self, token: int, before: list[int]) -> bool:
        return not before or (token - before[-1]) % self._modulus != 0

    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        """Whether all of them follow what was accepted so far, which they then belong to."""
        is_valid = len(self.validate_tokens(tokens)) == len(tokens)
        if is_valid:
            self._tokens += tokens
        return is_valid

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        """The longest valid beginning; nothing is accepted by it."""
        valid: list[int] = []
        for token in tokens:
            if not self._allows(token, [*self._tokens, *valid]):
                break
            valid.append(token)
        return valid

    def rollback(self, num_tokens: int) -> None:
        """Takes back the last tokens."""
        del self._tokens[len(self._tokens) - num_tokens :]

    def fill_bitmask(self, bitmask: Any, batch_index: int) -> None:
        """One row of masks. bitmask: int32 [rows, vocabulary / 32], written in one row"""
        if not self._tokens:
            bitmask[batch_index] = -1
            return
        self._watch.counters["masked_rows"] += 1
        tokens = torch.arange(bitmask.shape[1] * _BITS)
        is_allowed = (tokens - self._tokens[-1]) % self._modulus != 0
        words = is_allowed.view(-1, _BITS).long() << torch.arange(_BITS)
        bitmask[batch_index] = words.sum(1).to(torch.int32)

    def is_terminated(self) -> bool:
        """It never ends by itself."""
        return False

    def reset(self) -> None:
        """As if nothing had been accepted."""
        self._tokens.clear()


class ModulusGrammars:
    """The backend of vLLM's manager of grammars, for an engine without a tokenizer."""

    def __init__(self, watch: RunnerWatch, vocab: int = VOCAB) -> None:
        self._watch = watch
        self._vocab = vocab

    def compile_grammar(
        self, request_type: object, grammar_spec: str, *args: Any, **kwargs: Any
    ) -> ModulusGrammar:
        """grammar_spec: the modulus. Raises ValueError for one above all tokens"""
        if int(grammar_spec) > MODULUS_MAX:
            self._watch.counters["refusals"] += 1
            raise ValueError(f"no two tokens are congruent modulo {grammar_spec}")
        return ModulusGrammar(self._watch, int(grammar_spec))

    def allocate_token_bitmask(self, max_num_seqs: int) -> Any:
        """int32 [max_num_seqs, vocabulary / 32], all allowed"""
        return torch.full((max_num_seqs, self._vocab // _BITS), -1, dtype=torch.int32)

    def destroy(self) -> None:
        """Nothing is kept."""


def use_grammars(core: Any, watch: RunnerWatch) -> None:
    """Grammars without a tokenizer. core: vLLM's engine core"""
    from vllm import SamplingParams
    from vllm.v1.structured_output.backend_types import StructuredOutputGrammar

    StructuredOutputGrammar.register(ModulusGrammar)  # a scheduler may ask whether it is one
    vocab = core.vllm_config.model_config.get_vocab_size()
    core.structured_output_manager.backend = ModulusGrammars(watch, vocab)
    core.structured_output_manager._use_async_grammar_compilation = False
    SamplingParams._validate_structured_outputs = lambda *args, **kwargs: None
