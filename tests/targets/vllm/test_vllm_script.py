"""The scripted model: verification of its drafts accepts what the scenario plans."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from racegate.scenario.spec import Request, Scenario
from racegate.targets.vllm.inside.scripted.model import VOCAB, WIDTH, Script, config
from racegate.targets.vllm.wire import REQUESTS_MAX, DraftMode

DRAFT_LEN = 3


def script_of(accepts: tuple[int, ...], *, prompt: int = 5, most: int = 20) -> Script:
    request = Request(
        name="A", arrive=0, prompt=tuple(range(prompt)), max_tokens=most, accepts=accepts
    )
    return Script(Scenario(name="s", title="t", requests=(request,)), draft_len=DRAFT_LEN)


def said(rule: Callable[[Any, Any], Any], token: int, position: int) -> int:
    return int(rule(torch.tensor([token]), torch.tensor([position])).reshape(-1)[0])


def accepted_counts(script: Script, *, prompt: int, rounds: int) -> list[int]:
    """Decodes speculatively, as any engine with this model does, and counts."""
    position = prompt - 1
    token = said(script.target, script.prompt(0)[-1], position)  # the prefill's own token
    counts = []
    for _ in range(rounds):
        drafts, seen, at = [], token, position
        for _ in range(DRAFT_LEN):
            seen = said(script.draft, seen, at)
            drafts.append(seen)
            at += 1
        count = 0
        for draft in [*drafts, None]:
            position += 1
            token, count = said(script.target, token, position), count + 1
            if draft != token:
                break
        counts.append(count)
    return counts


@settings(max_examples=40)
@given(st.lists(st.integers(1, DRAFT_LEN + 1), min_size=1, max_size=6), st.integers(1, 40))
def test_the_planned_counts_are_accepted(accepts: list[int], prompt: int) -> None:
    script = script_of(tuple(accepts), prompt=prompt, most=40)
    planned = [accepts[i % len(accepts)] for i in range(8)]
    assert accepted_counts(script, prompt=prompt, rounds=8) == planned


def test_a_drafter_with_positions_of_its_own_says_the_same() -> None:
    request = Request(name="A", arrive=0, prompt=(1, 2, 3), max_tokens=20, accepts=(2, 4))
    scenario = Scenario(name="s", title="t", requests=(request,))
    behind, own = (Script(scenario, draft_len=DRAFT_LEN, ahead=ahead) for ahead in (2, 1))
    for place in range(3, 12):
        token = int(own.token_at(0, place) or 0)
        assert said(own.draft, token, place) == said(behind.draft, token, place - 1)


def test_only_drafts_of_sampled_requests_are_drawn_of_two_tokens() -> None:
    requests = tuple(
        Request(name=name, arrive=0, prompt=(1, 2), max_tokens=9, accepts=(2,), temperature=warm)
        for name, warm in (("A", 0.05), ("B", 0.0))
    )
    scenario = Scenario(name="s", title="t", requests=requests)
    drawn = Script(scenario, draft_len=DRAFT_LEN, draft_mode=DraftMode.PROBABILISTIC)
    for index, name in enumerate("AB"):
        for place in range(3, 8):
            likeliest, other = drawn.draft(
                torch.tensor([index * WIDTH]), torch.tensor([place - 2])
            )[0].tolist()
            may = drawn.drawn_at(index, place)
            assert likeliest == drawn.draft_at(index, place) == may[0]
            assert {likeliest, other} == set(may) and len(may) == (2 if name == "A" else 1)
            assert drawn.token_at(index, place) in may or name == "B"
    assert not Script(scenario, draft_len=DRAFT_LEN).draws("A")


def test_plain_decoding_is_the_target_alone() -> None:
    script = script_of((2, 4), prompt=5, most=6)
    token, tokens = script.prompt(0)[-1], []
    for position in range(4, 10):
        token = said(script.target, token, position)
        tokens.append(token)
    assert script.plain(0) == tuple(tokens)


def test_a_token_says_whose_it_is() -> None:
    requests = tuple(
        Request(name=f"R{i}", arrive=0, prompt=(96 + i, 7), max_tokens=4) for i in range(3)
    )
    script = Script(Scenario(name="s", title="t", requests=requests), draft_len=DRAFT_LEN)
    for index in range(3):
        owners = {token // WIDTH for token in (*script.prompt(index), *script.plain(index))}
        assert owners == {index}


def test_a_request_that_asks_the_same_is_answered_the_same() -> None:
    """To the last token: no token of it says that another request asked."""
    first = Request(name="A", arrive=0, prompt=(1, 2, 3), max_tokens=9, accepts=(2,))
    again = msgspec.structs.replace(first, name="B", arrive=4, max_tokens=5, seed=3)
    other = msgspec.structs.replace(first, name="C", accepts=(3,))
    requests = (first, again, other)
    script = Script(Scenario(name="s", title="t", requests=requests), draft_len=DRAFT_LEN)
    assert script.prompt(1) == script.prompt(0) != script.prompt(2)
    assert script.plain(1) == script.plain(0)[:5]
    assert script.own(1) == script.own(0) == range(WIDTH)
    places = range(3, 9)
    assert [script.draft_at(1, at) for at in places] == [script.draft_at(0, at) for at in places]
    assert [script.token_at(1, at) for at in places] == [script.token_at(0, at) for at in places]
    assert script.plain(2)[0] in script.own(2) == range(2 * WIDTH, 3 * WIDTH)


def test_a_token_of_nobody_is_answered() -> None:
    """Padding rows run with whatever stands in memory."""
    script = script_of((2,))
    for token in (-1, VOCAB - 1, REQUESTS_MAX * WIDTH):
        assert 0 <= said(script.target, token, 3) < VOCAB
        assert 0 <= said(script.draft, token, 3) < VOCAB


def test_the_model_has_a_token_for_every_request() -> None:
    assert config()["vocab_size"] == VOCAB >= REQUESTS_MAX * WIDTH
