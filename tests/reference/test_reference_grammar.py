"""The grammar: which logits it takes out, and that every drawn token went through it."""

from __future__ import annotations

import math
from itertools import pairwise

import msgspec
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from racegate.history.observe import Boundary
from racegate.scenario.settings import DrafterKind, ModelSpec, Numerics
from racegate.scenario.spec import OwnScenario
from racegate_reference.decoding import truth
from racegate_reference.engine import run_reference
from racegate_reference.model import build_model
from racegate_reference.paths import Path
from racegate_reference.recompute import recompute
from racegate_reference.sampling import Draw, constrain, draw_token, greedy, number_at, weights_of
from reference_runs import observed
from reference_scenarios import SMALL, model_specs, request, scenario, scenarios
from support import JUDGED

DTYPES = (np.uint32, np.float64)


def forbidden(token: int, previous: int, modulus: int) -> bool:
    """What the grammar says, once more."""
    return modulus > 0 and (token - previous) % modulus == 0


@pytest.mark.parametrize("dtype", DTYPES)
def test_tokens_congruent_to_the_one_before_are_forbidden(dtype: type) -> None:
    logits = np.array([5, 6, 7, 8, 9, 10, 11], dtype=dtype)
    lowest = 0 if dtype is np.uint32 else -math.inf
    # Behind token 4, modulo 3: 1 and 4.
    allowed = constrain(logits, previous=4, modulus=3)
    assert allowed.dtype == dtype
    assert allowed.tolist() == [5, lowest, 7, 8, lowest, 10, 11]
    # Behind token 0, modulo 7: no token but itself.
    assert constrain(logits, previous=0, modulus=7).tolist() == [lowest, 6, 7, 8, 9, 10, 11]
    # Tokens below the one before count as well.
    assert constrain(logits, previous=6, modulus=4).tolist() == [5, 6, lowest, 8, 9, 10, lowest]
    assert constrain(logits, previous=4, modulus=0).tolist() == logits.tolist()
    # The logits themselves are left alone.
    assert logits.tolist() == [5, 6, 7, 8, 9, 10, 11]


def test_a_choice_of_one_is_certain() -> None:
    logits = np.array([0.5, 0.75])
    assert greedy(constrain(logits, previous=1, modulus=2)).token == 0
    assert greedy(constrain(logits, previous=1, modulus=2)).margin == math.inf
    assert greedy(constrain(logits, previous=0, modulus=2)).token == 1


def test_in_exact_a_forbidden_token_keeps_the_weight_of_the_logit_0() -> None:
    # At temperature 1/256 a step of weight is 8 units of the upper half.
    logits = np.array([16, 40, 24], dtype=np.uint32) << 16
    allowed = constrain(logits, previous=1, modulus=3)
    # 16 is one step below the highest one that is left, 0 is three.
    assert weights_of(allowed, 1 / 256).tolist() == [65536 >> 1, 65536 >> 3, 65536]
    # Where every allowed logit is 0 too, the lowest index wins.
    assert greedy(constrain(np.array([9, 0, 0], dtype=np.uint32), previous=0, modulus=3)).token == 0


@given(
    logits=st.lists(st.floats(-4, 4), min_size=2, max_size=9),
    data=st.data(),
    number=st.integers(0, 2**32 - 1),
    temperature=st.sampled_from((0.0, 0.5, 2.0)),
)
@settings(max_examples=100)
def test_in_float_it_is_drawing_from_the_allowed_alone(
    logits: list[float], data: st.DataObject, number: int, temperature: float
) -> None:
    modulus = data.draw(st.integers(2, len(logits)))
    previous = data.draw(st.integers(0, len(logits) - 1))
    allowed = [v for v in range(len(logits)) if not forbidden(v, previous, modulus)]
    constrained = constrain(np.array(logits), previous=previous, modulus=modulus)
    draw = draw_token(constrained, number=number, temperature=temperature)
    assume(draw.margin > 1e-9)
    if len(allowed) == 1:
        assert draw.token == allowed[0]
    else:
        alone = draw_token(np.array(logits)[allowed], number=number, temperature=temperature)
        assert draw.token == allowed[alone.token]


@given(number=st.integers(0, 2**32 - 1))
def test_tokens_without_a_share_make_no_decision_close(number: int) -> None:
    constrained = constrain(np.array([1.0, 2.0]), previous=0, modulus=2)
    assert draw_token(constrained, number=number, temperature=0.7) == Draw(1, np.inf)


@given(
    spec=model_specs(),
    temperature=st.sampled_from((0.0, 0.7)),
    modulus=st.integers(2, 5),
)
@settings(max_examples=30)
def test_path_draws_each_token_behind_the_one_before_it(
    spec: ModelSpec, temperature: float, modulus: int
) -> None:
    model = build_model(spec)
    asked = request(prompt=(1, 0), seed=5, temperature=temperature, grammar_modulus=modulus)
    lowest = 0 if spec.numerics is Numerics.EXACT else -math.inf
    tokens = list(asked.prompt)
    while len(tokens) < 8:
        logits = recompute(model, tokens).logits[-1]
        for v in range(spec.vocab_size):
            if forbidden(v, tokens[-1], modulus):
                logits[v] = lowest
        number = number_at(asked.seed, len(tokens))
        tokens.append(draw_token(logits, number=number, temperature=temperature).token)
    assert Path(model, asked).tokens(0, 8) == tuple(tokens)


@given(scenarios())
@settings(max_examples=60)
def test_what_is_delivered_obeys_the_grammar(of: OwnScenario) -> None:
    # Greedy, for in exact a forbidden token keeps some weight.
    requests = tuple(
        msgspec.structs.replace(asked, temperature=0.0, grammar_modulus=2) for asked in of.requests
    )
    run = run_reference(msgspec.structs.replace(of, requests=requests))
    for asked in requests:
        tokens = asked.prompt[-1:] + run.delivered[asked.name]
        for previous, token in pairwise(tokens):
            assert not forbidden(token, previous, 2)


@pytest.mark.parametrize("numerics", JUDGED)
def test_two_tokens_that_must_alternate(numerics: Numerics) -> None:
    """Only one token is allowed behind each: whatever the drafter says, they alternate."""
    of = scenario(
        request(prompt=(0, 0, 1), max_tokens=40, grammar_modulus=2),
        model=msgspec.structs.replace(SMALL, vocab_size=2, numerics=numerics, seed=3),
        drafter=DrafterKind.MTP,
        draft_len_max=2,
        depth=1,
    )
    run = run_reference(of)
    # The prompt itself need not obey.
    assert run.delivered["A"] == (0, 1) * 20
    inputs, sampled = observed(run, Boundary.INPUTS), observed(run, Boundary.SAMPLED)
    accepted = set()
    # Step 0 is the prompt.
    for step in list(inputs)[1:]:
        token, *drafts = inputs[step]["input_ids"].tolist()
        # Each draft that alternates is accepted, up to the first that does not.
        right = [draft == (token + 1 + i) % 2 for i, draft in enumerate(drafts)]
        a = (*right, False).index(False) + 1
        assert sampled[step]["accepted"].tolist() == [a]
        # A position behind an accepted draft is constrained by the draft.
        expected = [(token + 1 + i) % 2 for i in range(a)]
        assert sampled[step]["sampled"][0, :a].tolist() == expected
        accepted.add(a)
    assert accepted == {1, 2, 3}


def test_drafters_know_nothing_of_the_grammar() -> None:
    """A draft may be forbidden, and is rejected then."""
    of = scenario(
        request(max_tokens=30, grammar_modulus=2),
        drafter=DrafterKind.MTP,
        draft_len_max=1,
        depth=1,
    )
    run = run_reference(of)
    inputs, sampled = observed(run, Boundary.INPUTS), observed(run, Boundary.SAMPLED)
    refused = 0
    for step, values in inputs.items():
        ids = values["input_ids"].tolist()
        if len(ids) == 2 and forbidden(ids[1], ids[0], 2):
            refused += 1
            assert sampled[step]["accepted"].tolist() == [1]
    assert refused > 3


def test_the_grammar_is_each_request_s_own() -> None:
    asked = request("A", max_tokens=12, temperature=1.0)
    own = msgspec.structs.replace(asked, name="B", grammar_modulus=3)
    both = run_reference(scenario(asked, own))
    assert both.delivered["A"] == run_reference(scenario(asked)).delivered["A"]
    assert both.delivered["B"] == run_reference(scenario(own)).delivered["B"]
    assert both.delivered["A"] != both.delivered["B"]
    # Until the grammar refuses a token for the first time, the tokens are the same.
    free, bound = truth(scenario(asked))["A"], truth(scenario(own))["B"]
    first = next(i for i in range(3, 40) if free[i] != bound[i])
    assert forbidden(free[first], free[first - 1], 3)
