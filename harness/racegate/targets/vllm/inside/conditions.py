"""What a scenario asks of the engine beside its requests' arrivals: few blocks, steps without
drafts, sampling with seeds and penalties, grammars. All of it through the release's own code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from importlib import import_module
from itertools import count
from math import ceil
from typing import Any, Protocol

import torch

from racegate.scenario.spec import Budget, DraftLimit, Scenario
from racegate.targets.common.inside.fields import name_of
from racegate.targets.common.wire import PENALISED
from racegate.targets.vllm.inside.scripted.model import VOCAB
from racegate.targets.vllm.inside.watch import RunnerWatch
from racegate.targets.vllm.wire import MODULUS_MAX

# Whatever applies them to logits.
_PENALISING = (
    ("vllm.v1.sample.sampler", "apply_all_penalties"),
    ("vllm.v1.sample.rejection_sampler", "apply_all_penalties"),
    ("vllm.v1.worker.gpu.sample.penalties", "apply_penalties"),
)
_BITS = 32  # tokens of one word of a mask


def leave_blocks(scheduler: Any, scenario: Scenario) -> Callable[[], AbstractContextManager[None]]:
    """The pool has as many free blocks as the scenario says, if it says fewer than there are: the
    others are taken, as another user of the memory would. Returns for how long they are given back:
    a pool of which somebody has blocks is not cleared.
    """
    left = scenario.free_blocks
    if left is None:
        return nullcontext
    pool = scheduler.kv_cache_manager.block_pool

    def take() -> Any:
        return pool.get_new_blocks(max(0, pool.get_num_free_blocks() - left))

    taken = take()

    @contextmanager
    def given_back() -> Iterator[None]:
        nonlocal taken
        pool.free_blocks(taken)
        yield
        taken = take()

    return given_back


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
    """Forbids tokens that are congruent to the one before them, until one ends it: in the place of
    the library's, which the release's own class of grammars asks.

    turns: it takes to compile it; end: the token behind which nothing follows
    """

    def __init__(
        self, watch: RunnerWatch, modulus: int, *, turns: int = 0, end: int | None = None
    ) -> None:
        self._watch = watch
        self._modulus = modulus
        self.turns = turns
        self._end = end
        self._tokens: list[int] = []

    def accept_token(self, token: int) -> bool:
        """Whether it may follow what was accepted so far, which it then belongs to."""
        before = self._tokens[-1:]
        is_valid = not self.is_terminated() and all((token - one) % self._modulus for one in before)
        if is_valid:
            self._tokens.append(token)
        return is_valid

    def rollback(self, num_tokens: int) -> None:
        """Takes back the last tokens."""
        del self._tokens[len(self._tokens) - num_tokens :]

    def fill_next_token_bitmask(self, bitmask: Any, index: int) -> None:
        """One row of masks. bitmask: int32 [rows, vocabulary / 32, rounded up], one is written"""
        if not self._tokens:
            bitmask[index] = -1
            return
        self._watch.counters["masked_rows"] += 1
        tokens = torch.arange(bitmask.shape[1] * _BITS)
        is_allowed = (tokens - self._tokens[-1]) % self._modulus != 0
        words = is_allowed.view(-1, _BITS).long() << torch.arange(_BITS)
        bitmask[index] = words.sum(1).to(torch.int32)

    def is_terminated(self) -> bool:
        """Whether the token that ends it was accepted."""
        return self._end is not None and self._tokens[-1:] == [self._end]

    def reset(self) -> None:
        """As if nothing had been accepted."""
        self._tokens.clear()


class CompiledGrammar(Protocol):
    """vLLM's own class of grammars, as far as it is asked here."""

    matcher: ModulusGrammar


class ModulusGrammars:
    """The backend of vLLM's manager of grammars, for an engine without a tokenizer."""

    def __init__(
        self, watch: RunnerWatch, made_of: Callable[..., CompiledGrammar], vocab: int = VOCAB
    ) -> None:
        """made_of: the release's own class of grammars"""
        self._watch = watch
        self._made_of = made_of
        self._vocab = vocab

    def compile_grammar(
        self, request_type: object, grammar_spec: str, *args: Any, **kwargs: Any
    ) -> CompiledGrammar:
        """grammar_spec: the modulus, the turns that it takes, and the token that ends it, if one
        does. Raises ValueError for a modulus above all tokens
        """
        modulus, turns, *end = map(int, grammar_spec.split())
        if modulus > MODULUS_MAX:
            self._watch.counters["refusals"] += 1
            raise ValueError(f"no two tokens are congruent modulo {modulus}")
        grammar = ModulusGrammar(self._watch, modulus, turns=turns, end=end[0] if end else None)
        return self._made_of(vocab_size=self._vocab, matcher=grammar, ctx=None)

    def allocate_token_bitmask(self, max_num_seqs: int) -> Any:
        """int32 [max_num_seqs, vocabulary / 32, rounded up], all allowed"""
        return torch.full((max_num_seqs, ceil(self._vocab / _BITS)), -1, dtype=torch.int32)

    def destroy(self) -> None:
        """Nothing is kept."""


class LateGrammar(Future[CompiledGrammar]):
    """A grammar as the thread that compiles it hands it over, some turns of the loop later.

    is_over: whether these have passed
    """

    def __init__(self, is_over: Callable[[], bool]) -> None:
        super().__init__()
        self._is_over = is_over

    def done(self) -> bool:
        """Whether it is compiled by now."""
        return super().done() and self._is_over()

    def result(self, timeout: float | None = None) -> CompiledGrammar:
        """The grammar. Raises TimeoutError if it is not compiled by now, and what compiling it
        raised.
        """
        if not self.done():
            raise TimeoutError
        return super().result(timeout)


class GrammarExecutor:
    """Compiles grammars beside the engine's loop, as vLLM's manager has it done in threads: each
    for so many turns as its request says. turn_of: the loop's
    """

    def __init__(self, watch: RunnerWatch, turn_of: Callable[[], int]) -> None:
        self._watch = watch
        self._turn_of = turn_of

    def submit(self, compile_of: Callable[[Any], CompiledGrammar], request: Any) -> LateGrammar:
        """Begins with one. What compiling it raises, the grammar raises."""
        begun, turns = self._turn_of(), 0
        late = LateGrammar(lambda: self._turn_of() >= begun + turns)
        try:
            grammar = compile_of(request)
            turns = grammar.matcher.turns
            late.set_result(grammar)
        except ValueError as error:  # a grammar that does not compile
            late.set_exception(error)
        self._watch.counters["late_grammars"] += turns > 0
        return late


def use_grammars(core: Any, watch: RunnerWatch, turn_of: Callable[[], int]) -> None:
    """Grammars without a tokenizer. core: vLLM's engine core; turn_of: its loop's"""
    from vllm import SamplingParams
    from vllm.v1.structured_output.backend_xgrammar import XgrammarGrammar

    vocab = core.vllm_config.model_config.get_vocab_size()
    core.structured_output_manager.backend = ModulusGrammars(watch, XgrammarGrammar, vocab)
    core.structured_output_manager.executor = GrammarExecutor(watch, turn_of)
    SamplingParams._validate_structured_outputs = lambda *args, **kwargs: None
