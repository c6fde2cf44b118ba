"""Each drafter against its definition, computed without the incremental cache."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reference_literal as literal
from racegate.scenario.settings import DrafterKind, EngineSpec, ModelSpec, Numerics
from racegate_reference import recompute
from racegate_reference.drafting import Drafter, Sampled, make_drafter
from racegate_reference.model import Model, build_model, head, normed
from racegate_reference.numbers import Array
from racegate_reference.paths import Path
from reference_scenarios import SMALL, model_specs, request, scenario
from support import JUDGED

ASKED = request(prompt=(1, 0, 1), temperature=0.5)


def drafter_of(kind: DrafterKind, model: Model, path: Path, **engine: int) -> Drafter:
    drafter = make_drafter(model, EngineSpec(drafter=kind, **engine), path)
    assert drafter is not None
    return drafter


def mtp_from_scratch(
    model: Model, path: Path, *, position: int, drafts: int
) -> tuple[list[int], Array]:
    """The drafts and the cache, by recomputing the whole drafter layer for every pass."""
    weights = model.draft
    tokens = [path.token(j + 1) for j in range(position + 1)]
    hidden = [path.hidden(j) for j in range(position + 1)]
    found: list[int] = []
    while True:
        embedded = normed(model, model.ends["embed"][tokens], weights.get("token_norm"))
        before = normed(model, np.stack(hidden), weights.get("hidden_norm"))
        e = np.concatenate([embedded, before], axis=1) @ weights["fc"].T
        f, cache = recompute.attention(model, weights, normed(model, e, weights.get("norm")))
        last = e[-1] + f[-1]
        found.append(int(np.argmax(head(model, last))))
        if len(found) == drafts:
            return found, cache.kv
        tokens.append(found[-1])
        hidden.append(last)


@given(spec=model_specs(), position=st.integers(0, 8))
@settings(max_examples=20)
def test_mtp_is_one_attention_layer_over_pairs(spec: ModelSpec, position: int) -> None:
    model = build_model(spec)
    path = Path(model, ASKED)
    mtp = drafter_of(DrafterKind.MTP, model, path, draft_len_max=3)
    drafts = mtp.propose(Sampled(position=position, tokens=(), target=1))
    expected, kv = mtp_from_scratch(model, path, position=position, drafts=3)
    if spec.numerics is Numerics.EXACT:
        assert list(drafts.tokens) == expected
        np.testing.assert_array_equal(mtp.entries(0, position + 1), kv[: position + 1])
    else:
        # A draft whose decision is closer than two orders of summation may differ.
        assert list(drafts.tokens) == expected or drafts.margin < 1e-9
        np.testing.assert_allclose(mtp.entries(0, position + 1), kv[: position + 1], rtol=1e-9)


def test_mtp_drafts_zero_behind_the_longest_sequence() -> None:
    model = build_model(SMALL)
    path = Path(model, ASKED)
    engine = {"draft_len_max": 3}
    free = drafter_of(DrafterKind.MTP, model, path, **engine)
    bound = drafter_of(DrafterKind.MTP, model, path, model_len_max=7, **engine)
    sampled = Sampled(position=5, tokens=(), target=1)
    # Draft i is made by a pass at position 5 + i.
    assert bound.propose(sampled).tokens == (*free.propose(sampled).tokens[:2], 0)


def test_provisional_entries_do_not_stay() -> None:
    model = build_model(SMALL)
    path = Path(model, ASKED)
    used, fresh = (drafter_of(DrafterKind.MTP, model, path, draft_len_max=3) for _ in range(2))
    for position in (2, 3, 7):
        used.propose(Sampled(position=position, tokens=(), target=1))
    np.testing.assert_array_equal(used.entries(0, 10), fresh.entries(0, 10))


@pytest.mark.parametrize("target", [1, 2, 3, 4])
def test_scripted_is_right_up_to_its_target(target: int) -> None:
    model = build_model(SMALL)
    path = Path(model, ASKED)
    scripted = drafter_of(DrafterKind.SCRIPTED, model, path, draft_len_max=3)
    entries = [
        literal.mix((path.token(j + 1) * 0x9E3779B9 + j * 0x85EBCA6B + 1) % 2**32) for j in range(5)
    ]
    digest = sum(literal.mix((e + j * 0xC2B2AE35) % 2**32) for j, e in enumerate(entries))
    expected = []
    for i in range(3):
        right = path.token(6 + i)
        wrong = (right + 1 + literal.mix((digest + i) % 2**32) % 10) % 11
        assert wrong != right
        expected.append(right if i < target - 1 else wrong)
    sampled = Sampled(position=4, tokens=(), target=target)
    assert scripted.propose(sampled).tokens == tuple(expected)
    assert scripted.entries(0, 5).tolist() == [[entry] for entry in entries]


def test_scripted_entries_are_words_in_float_too() -> None:
    model = build_model(ModelSpec(numerics=Numerics.FLOAT32))
    scripted = drafter_of(DrafterKind.SCRIPTED, model, Path(model, ASKED))
    assert scripted.entries(2, 5).dtype == np.uint32


@pytest.mark.parametrize("numerics", JUDGED)
def test_extract_hidden_states_drafts_what_was_sampled_first(numerics: Numerics) -> None:
    model = build_model(ModelSpec(numerics=numerics))
    path = Path(model, ASKED)
    drafter = drafter_of(DrafterKind.EXTRACT_HIDDEN_STATES, model, path, draft_len_max=1)
    assert drafter.propose(Sampled(position=3, tokens=(9, 4), target=1)).tokens == (9,)
    entries = drafter.entries(1, 4)
    assert entries.dtype == model.numerics.dtype
    np.testing.assert_array_equal(entries[:, :-1], [path.hidden(j) for j in (1, 2, 3)])
    assert entries[:, -1].tolist() == list(path.tokens(2, 5))


def test_no_drafter_without_drafts() -> None:
    model = build_model(SMALL)
    engine = EngineSpec(drafter=DrafterKind.NONE, draft_len_max=0)
    assert make_drafter(model, engine, Path(model, ASKED)) is None


@pytest.mark.parametrize("kind", [DrafterKind.NONE, DrafterKind.EXTRACT_HIDDEN_STATES])
def test_a_draft_length_the_drafter_cannot_have_is_refused(kind: DrafterKind) -> None:
    asked = scenario(ASKED, drafter=kind, draft_len_max=2)
    model = build_model(asked.model)
    with pytest.raises(ValueError, match="draft_len_max"):
        make_drafter(model, asked.engine, Path(model, ASKED))
