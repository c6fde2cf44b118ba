"""What scenarios ask of vLLM beside arrivals, as far as it needs no vLLM."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bare_session import engine_session
from racegate.interpose.outcome import Ending
from racegate.scenario.expect import Expect
from racegate.scenario.spec import Budget, DraftLimit, Request, Scenario
from racegate.targets.common.judge import unmet_expectations
from racegate.targets.common.wire import PENALISED, TEMPERATURE_ONE, UNPENALISED, ReleaseRun
from racegate.targets.vllm.cell import Cell
from racegate.targets.vllm.inside.conditions import (
    GrammarExecutor,
    ModulusGrammar,
    ModulusGrammars,
    StepLimits,
    leave_blocks,
    limit_drafts,
    throttle_prefills,
    watch_conditions,
)
from racegate.targets.vllm.inside.scripted.model import VOCAB, WIDTH, Script
from racegate.targets.vllm.inside.scripted.params import (
    NO_PENALTIES,
    ONE_PENALTY,
    SCORED,
    SORTS,
    drawn_as,
    narrowed_as,
    penalties_of,
    scored_as,
    words_of,
)
from racegate.targets.vllm.inside.scripted.thinking import (
    BEGINS,
    ENDS,
    FORCED,
    asked_budgets,
    budget_of,
)
from racegate.targets.vllm.inside.watch import RunnerWatch, stops_inside
from racegate.targets.vllm.wire import (
    ANY,
    MODULUS_MAX,
    REQUESTS_MAX,
    ModelRunner,
    StateMode,
    ThinkingMode,
    seed_asked,
)

ONE = Request(name="A", arrive=0, prompt=(1, 2, 3), max_tokens=9)
SCENARIO = Scenario(name="s", title="t", requests=(ONE,))


def a_watch() -> RunnerWatch:
    return RunnerWatch(engine_session())


def a_backend(watch: RunnerWatch | None = None, vocab: int = VOCAB) -> ModulusGrammars:
    return ModulusGrammars(watch or a_watch(), SimpleNamespace, vocab)


@settings(max_examples=25)
@given(st.integers(2, 5), st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=6))
def test_a_mask_allows_what_the_grammar_accepts(modulus: int, tokens: list[int]) -> None:
    grammars = a_backend()
    grammar = grammars.compile_grammar("regex", f"{modulus} 0").matcher
    mask = grammars.allocate_token_bitmask(2)
    for token in tokens:
        grammar.fill_next_token_bitmask(mask, 1)
        is_allowed = bool(mask[1, token // 32].item() >> (token % 32) & 1)
        assert grammar.accept_token(token) is is_allowed
    assert torch.equal(mask[0], torch.full((-(-VOCAB // 32),), -1, dtype=torch.int32))


def test_a_mask_has_as_many_tokens_as_the_model() -> None:
    grammars = a_backend(vocab=2 * VOCAB)
    grammar, mask = grammars.compile_grammar("regex", "3 0"), grammars.allocate_token_bitmask(1)
    assert mask.shape == (1, -(-2 * VOCAB // 32)) and grammar.matcher.accept_token(0)
    grammar.matcher.fill_next_token_bitmask(mask, 0)
    last = [bool(mask[0, -1].item() >> bit & 1) for bit in range(32)]
    first = 2 * VOCAB // 32 * 32
    assert last == [token % 3 != 0 for token in range(first, first + 32)]


def accepted(grammar: ModulusGrammar, *tokens: int) -> list[bool]:
    return [grammar.accept_token(token) for token in tokens]


def test_a_grammar_takes_tokens_back() -> None:
    grammar = a_backend().compile_grammar("regex", "2 0").matcher
    assert accepted(grammar, 1, 2, 3, 5) == [True, True, True, False]
    grammar.rollback(1)
    assert accepted(grammar, 4) == [False]
    grammar.reset()
    assert accepted(grammar, 4) == [True]


def test_a_grammar_ends_with_a_token_and_goes_on_without_it() -> None:
    grammar = a_backend().compile_grammar("regex", "2 0 6").matcher
    assert accepted(grammar, 1, 6) == [True, True] and grammar.is_terminated()
    assert accepted(grammar, 7) == [False]
    grammar.rollback(1)
    assert not grammar.is_terminated() and accepted(grammar, 4, 7) == [True, True]


def test_prompts_share_the_tokens_of_an_equal_beginning() -> None:
    requests = (
        ONE,
        msgspec.structs.replace(ONE, name="B", prompt=(1, 2, 9, 4)),
        msgspec.structs.replace(ONE, name="C", prompt=(1, 2, 9, 4), accepts=(3,)),
    )
    script = Script(msgspec.structs.replace(SCENARIO, requests=requests), draft_len=3)
    first, second, third = (script.prompt(index) for index in range(3))
    assert second[:2] == first[:2] and second[2] not in first
    assert third[:3] == second[:3] and third[3] != second[3]


def test_a_second_turn_begins_with_what_the_first_one_said() -> None:
    said = tuple((7 * place + 3) % WIDTH for place in range(3, 7))
    second = msgspec.structs.replace(ONE, name="B", prompt=(*ONE.prompt, *said, 5, 6))
    script = Script(msgspec.structs.replace(SCENARIO, requests=(ONE, second)), draft_len=3)
    assert script.prompt(1)[:7] == [*script.prompt(0), *script.plain(0)][:7]
    assert script.prompt(1)[7:] == [WIDTH + 5, WIDTH + 6]


class Pool:
    def __init__(self, free: int) -> None:
        self.free = free

    def get_num_free_blocks(self) -> int:
        return self.free

    def get_new_blocks(self, count: int) -> list[None]:
        self.free -= count
        return [None] * count

    def free_blocks(self, blocks: list[None]) -> None:
        self.free += len(blocks)


@pytest.mark.parametrize(("blocks", "left"), [(None, 800), (14, 14), (127, 100)])
def test_the_pool_has_as_many_blocks_as_the_scenario_says(blocks: int | None, left: int) -> None:
    pool = Pool(800 if left != 100 else 100)
    scheduler = SimpleNamespace(kv_cache_manager=SimpleNamespace(block_pool=pool))
    leave_blocks(scheduler, msgspec.structs.replace(SCENARIO, free_blocks=blocks))
    assert pool.free == left


def test_nobody_else_has_blocks_while_the_pool_is_cleared() -> None:
    pool = Pool(800)
    scheduler = SimpleNamespace(kv_cache_manager=SimpleNamespace(block_pool=pool))
    given_back = leave_blocks(scheduler, msgspec.structs.replace(SCENARIO, free_blocks=14))
    pool.get_new_blocks(9)  # of requests, which give theirs back first
    for _ in range(2):
        with given_back():
            pool.free_blocks([None] * (800 - pool.free))
            assert pool.free == 800
        assert pool.free == 14


def test_drafts_are_limited_in_their_step() -> None:
    waits = SimpleNamespace(spec_token_ids=[-1, -1, -1])
    scheduler = SimpleNamespace(requests={"A-0123abcd": waits})
    limited = msgspec.structs.replace(SCENARIO, events=(DraftLimit(step=5, request="A", drafts=1),))
    limit_drafts(scheduler, limited, 4, is_plain=False)
    assert waits.spec_token_ids == [-1, -1, -1]
    limit_drafts(scheduler, limited, 5, is_plain=False)
    assert waits.spec_token_ids == [-1]


def test_a_step_has_the_tokens_of_its_budget_and_the_next_one_all() -> None:
    waits = SimpleNamespace(spec_token_ids=[-1, -1])
    scheduler = SimpleNamespace(max_num_scheduled_tokens=256, requests={"A-0123abcd": waits})
    events = (Budget(step=5, tokens=4), Budget(step=7, tokens=999))
    limited = msgspec.structs.replace(SCENARIO, events=events)
    limits, had = StepLimits(scheduler), []
    for step in range(4, 8):
        limits.set(limited, step, is_plain=step == 7)
        had.append(scheduler.max_num_scheduled_tokens)
    assert had == [256, 4, 256, 256] and waits.spec_token_ids == []
    cell = Cell(release="1", runner=ModelRunner.V1, mode=StateMode.NONE)
    assert cell.cannot_run(limited) == ""
    nothing = msgspec.structs.replace(SCENARIO, events=(Budget(step=5, tokens=0),))
    assert "schedule nothing" in cell.cannot_run(nothing)


def test_prefills_wait_for_every_so_manieth_step() -> None:
    core = SimpleNamespace(_should_throttle_prefills=lambda: False)
    throttle_prefills(core, 0)
    assert not core._should_throttle_prefills()
    throttle_prefills(core, 3)
    waits = [core._should_throttle_prefills() for _ in range(7)]
    assert waits == [False, True, True, False, True, True, False]
    with pytest.raises(RuntimeError, match="does not throttle"):
        throttle_prefills(SimpleNamespace(), 3)


def test_nobody_compiles_a_grammar_above_all_tokens() -> None:
    watch = a_watch()
    grammars = a_backend(watch)
    assert MODULUS_MAX == VOCAB and grammars.compile_grammar("regex", f"{MODULUS_MAX} 0")
    with pytest.raises(ValueError, match="congruent"):
        grammars.compile_grammar("regex", f"{MODULUS_MAX + 1} 0")
    assert watch.counters["refusals"] == 1
    refused = msgspec.structs.replace(ONE, name="G", grammar_modulus=MODULUS_MAX + 1)
    script = Script(msgspec.structs.replace(SCENARIO, requests=(ONE, refused)), draft_len=3)
    assert len(script.plain(0)) == 9 and script.plain(1) == ()


def test_requests_of_large_seeds_have_no_penalties() -> None:
    warm = msgspec.structs.replace(ONE, temperature=0.05, seed=UNPENALISED)
    assert penalties_of(warm) == NO_PENALTIES
    frequent = penalties_of(msgspec.structs.replace(warm, seed=ONE_PENALTY))
    assert [name for name in frequent if frequent[name] != NO_PENALTIES[name]] == [
        "frequency_penalty"
    ]
    penalised = penalties_of(msgspec.structs.replace(warm, seed=UNPENALISED - 1))
    assert all(penalised[name] != usual for name, usual in NO_PENALTIES.items())


def test_a_request_at_a_temperature_of_one_has_no_penalties() -> None:
    one = msgspec.structs.replace(ONE, temperature=TEMPERATURE_ONE, seed=3)
    assert penalties_of(one) == NO_PENALTIES
    told = ReleaseRun(ending=Ending.FINISHED)
    cell = Cell(release="1", runner=ModelRunner.V1, mode=StateMode.NONE)
    alone = msgspec.structs.replace(SCENARIO, requests=(one,))
    assert unmet_expectations(cell, alone, told) == ()


def test_a_request_that_is_stopped_says_no_more() -> None:
    stopped = msgspec.structs.replace(ONE, stop_after=5)
    script = Script(msgspec.structs.replace(SCENARIO, requests=(stopped,)), draft_len=3)
    longer = Script(msgspec.structs.replace(SCENARIO, requests=(ONE,)), draft_len=3)
    assert script.plain(0) == longer.plain(0)[:5] and len(longer.plain(0)) > 5
    assert not script.cut(ONE.name, 5)  # it was done by then
    assert script.cut(ONE.name, 4) and len(script.plain(0)) == 4
    said = Script(msgspec.structs.replace(SCENARIO, requests=(stopped,)), draft_len=3).plain(0)
    assert said.count(said[-1]) == 1


def test_a_stop_inside_what_a_request_got_is_counted() -> None:
    def made(*tokens: int, reason: str | None) -> Any:
        return SimpleNamespace(request_id="A", new_token_ids=tokens, finish_reason=reason)

    def counted(one: Any) -> int:
        return stops_inside({0: SimpleNamespace(outputs=[one])}, {"A": [1, 2, 3]})

    assert counted(made(1, 2, reason="stop")) == 1
    assert counted(made(1, 2, 3, reason="stop")) == 0
    assert counted(made(1, 2, reason="length")) == counted(made(1, 2, 3, reason=None)) == 0


def test_requests_of_the_largest_seeds_ask_for_scores_of_their_prompts() -> None:
    warm = msgspec.structs.replace(ONE, temperature=0.05, seed=SCORED)
    assert scored_as(warm) == {"prompt_logprobs": 2} and penalties_of(warm) == NO_PENALTIES
    assert scored_as(msgspec.structs.replace(warm, seed=SCORED - 1)) == {}


def test_seeds_of_any_kind_draw_all_that_a_request_is_sampled_with() -> None:
    own = range(40, 60)
    every = [msgspec.structs.replace(ONE, temperature=0.05, seed=seed) for seed in ANY[:400]]
    asked = [drawn_as(one, own, is_drafted=True) for one in every]
    assert asked == [drawn_as(one, own, is_drafted=True) for one in every]
    assert not {"min_p", "logit_bias"} & set().union(*asked)  # beside drafts they are refused
    alone = set().union(*(drawn_as(one, own, is_drafted=False) for one in every))
    assert alone - set().union(*asked) == {"min_p", "logit_bias"}
    for name in alone:  # each is there or not, whatever the others are
        assert {name in drawn_as(one, own, is_drafted=False) for one in every} == {True, False}
    seeds = {seed_asked(one) for one in every}
    assert {None, 0} < seeds and ANY[2] in seeds
    some = [penalties_of(one) for one in every]
    assert NO_PENALTIES in some
    for name, usual in NO_PENALTIES.items():
        assert any(one[name] != usual for one in some)
    outside = msgspec.structs.replace(ONE, temperature=0.05, seed=ANY[0] - 1)
    assert seed_asked(outside) == ANY[0] - 1


def a_scheduler(*running: str, most: int = 256) -> Any:
    requests = [SimpleNamespace(request_id=one) for one in running]
    return SimpleNamespace(max_num_scheduled_tokens=most, running=requests)


def test_who_is_left_out_of_a_step_that_is_full_is_counted() -> None:
    for most, gaps in ((4, 1), (5, 0)):
        watch = a_watch()
        watch_conditions(watch, a_scheduler("A", "B", most=most), scheduled(3, {}), {"A": 3})
        assert watch.counters["gaps"] == gaps


def scheduled(computed: int, drafts: dict[str, list[int]], *, hit: int = 0) -> Any:
    return SimpleNamespace(
        total_num_scheduled_tokens=4,
        num_scheduled_tokens={"A": 4},
        scheduled_spec_decode_tokens=drafts,
        scheduled_new_reqs=[SimpleNamespace(num_computed_tokens=hit)],
        scheduled_cached_reqs=SimpleNamespace(req_ids=["A"], num_computed_tokens=[computed]),
    )


def test_steps_without_drafts_and_hits_are_counted() -> None:
    watch = a_watch()
    watch_conditions(watch, a_scheduler(), scheduled(2, {}), {"A": 3})  # still in its prefill
    watch_conditions(watch, a_scheduler(), scheduled(3, {"A": [-1]}), {"A": 3})
    assert watch.counters["zero_draft_rows"] == watch.counters["prefix_hits"] == 0
    watch_conditions(watch, a_scheduler(), scheduled(3, {}, hit=80), {"A": 3})
    assert watch.counters["zero_draft_rows"] == watch.counters["prefix_hits"] == 1


def test_a_request_with_a_temperature_must_have_been_penalised() -> None:
    """If it has penalties at all: by its seed."""
    warm = msgspec.structs.replace(
        SCENARIO, requests=(msgspec.structs.replace(ONE, temperature=0.05),)
    )
    told = ReleaseRun(ending=Ending.FINISHED)
    cell = Cell(release="1", runner=ModelRunner.V1, mode=StateMode.NONE)
    assert unmet_expectations(cell, SCENARIO, told) == ()
    assert PENALISED in unmet_expectations(cell, warm, told)[0]
    plain = msgspec.structs.replace(warm.requests[0], seed=UNPENALISED)
    warm = msgspec.structs.replace(warm, requests=(plain,))
    assert unmet_expectations(cell, warm, told) == ()


def test_prefixes_need_a_mode_that_caches_them() -> None:
    hits = msgspec.structs.replace(SCENARIO, expect=Expect(prefix_hits=1))
    cells = {m: Cell(release="1", runner=ModelRunner.V1, mode=m) for m in StateMode}
    assert "cache-mode align" in cells[StateMode.NONE].cannot_run(hits)
    assert cells[StateMode.ALIGN].cannot_run(hits) == ""


@given(
    sort=st.integers(0, SORTS - 1),
    index=st.integers(0, REQUESTS_MAX - 1),
    is_drafted=st.booleans(),
)
def test_what_a_request_is_sampled_with_forbids_no_token_of_its_own(
    *, sort: int, index: int, is_drafted: bool
) -> None:
    own = range(index * WIDTH, (index + 1) * WIDTH)
    asked = narrowed_as(sort, own, is_drafted=is_drafted)
    assert set(own) <= set(asked.get("allowed_token_ids", own))
    assert set(own).isdisjoint(asked.get("stop_token_ids", ()))
    assert set(own).isdisjoint(word[-1] for word in words_of(own))
    named = asked.get("logprob_token_ids", ())
    assert set(named) <= set(own) and (not named or len(named) == asked["logprobs"])
    assert not is_drafted or not asked.keys() & {"min_p", "logit_bias"}


@given(st.integers(0, REQUESTS_MAX - 1))
def test_the_last_token_of_a_word_is_forbidden_by_no_other_word_alone(index: int) -> None:
    """Else a mistake in what has to stand before it would show in nothing."""
    words = words_of(range(index * WIDTH, (index + 1) * WIDTH))
    ends = {len(word): {other[-1] for other in words if len(other) == len(word)} for word in words}
    assert ends.keys() == {1, 2, 3} and [len(each) for each in ends.values()] == [1, 1, 1]
    assert len(set.union(*ends.values())) == 3


def test_rows_of_different_sorts_are_sampled_with_different_parameters() -> None:
    asked = [narrowed_as(sort, range(64, 128), is_drafted=False) for sort in range(SORTS)]
    assert all(one != other for one in asked for other in asked if one is not other)


def test_all_requests_but_the_first_are_given_no_token_to_think_with() -> None:
    """So that another's budget cuts the first one short, which thinks."""
    first, second = range(64), range(64, 128)
    assert budget_of(first, ThinkingMode.BUDGETS) == {}
    assert budget_of(second, ThinkingMode.BUDGETS) == {"thinking_token_budget": 0}
    assert budget_of(second, ThinkingMode.NONE) == {}
    assert BEGINS in first and not {ENDS, FORCED} & {*range(REQUESTS_MAX * WIDTH)}
    assert asked_budgets(ThinkingMode.NONE) == {}


def test_a_grammar_is_compiled_for_so_many_turns_of_the_loop() -> None:
    turn, watch = 5, a_watch()
    executor = GrammarExecutor(watch, lambda: turn)
    grammars = a_backend(watch)
    late, at_once = (
        executor.submit(lambda asked: grammars.compile_grammar("regex", asked), asked)
        for asked in ("2 3", "2 0")
    )
    assert at_once.done() and accepted(at_once.result().matcher, 1, 3) == [True, False]
    turn = 7
    assert not late.done()
    with pytest.raises(TimeoutError):
        late.result(timeout=0.0001)
    turn = 8
    assert late.done() and late.result().matcher.turns == 3
    assert watch.counters["late_grammars"] == 1


def test_what_compiling_a_grammar_raises_the_request_is_told() -> None:
    watch = a_watch()
    executor, grammars = GrammarExecutor(watch, lambda: 0), a_backend(watch)
    asked = f"{MODULUS_MAX + 1} 2"
    refused = executor.submit(lambda asked: grammars.compile_grammar("regex", asked), asked)
    assert refused.done()
    with pytest.raises(ValueError, match="congruent"):
        refused.result()
    assert watch.counters["late_grammars"] == 0
