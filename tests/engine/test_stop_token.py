"""A token that ends its request: the engine delivers plain decoding up to it, and no more."""

from __future__ import annotations

import msgspec
from hypothesis import event, given, settings
from hypothesis import strategies as st

from racegate.check.checker import Checker
from racegate.explore.strategies import scenarios
from racegate.oracles.losslessness import find_losses
from racegate.scenario.spec import OwnScenario, Request
from racegate_reference.decoding import plain_decode
from racegate_reference.engine import run_reference
from support import IS_NIGHTLY, checker, scenario


def unstopped(of: OwnScenario) -> dict[str, tuple[int, ...]]:
    """What each request would deliver without its stop token."""
    return {
        request.name: plain_decode(of, msgspec.structs.replace(request, stop_token=None))
        for request in of.requests
    }


def cut(tokens: tuple[int, ...], stop: int | None) -> tuple[int, ...]:
    """Up to the first stop token, and with it."""
    return tokens if stop not in tokens else tokens[: 1 + tokens.index(stop)]


@st.composite
def stopping(draw: st.DrawFn) -> OwnScenario:
    """A generated scenario in which some requests stop at a token that they would deliver."""
    of = draw(scenarios())
    # A float scenario may take another model seed; then the token stops nothing, which is legal.
    plain = unstopped(of)

    def with_stop(request: Request) -> Request:
        token = draw(st.none() | st.sampled_from(plain[request.name]))
        return msgspec.structs.replace(request, stop_token=token)

    requests = tuple(with_stop(request) for request in of.requests)
    depth = draw(st.sampled_from((2, 1, 3)))
    engine = msgspec.structs.replace(of.engine, depth=depth)
    return msgspec.structs.replace(of, requests=requests, engine=engine)


@settings(max_examples=10_000 if IS_NIGHTLY else 40)
@given(stopping())
def test_delivery_ends_with_the_first_stop_token(of: OwnScenario) -> None:
    judge = Checker(of)
    run = judge.execute()
    assert judge.judge(run).findings == ()
    assert run.result is not None
    whole = unstopped(judge.scenario)
    for request in judge.scenario.requests:
        # Drawn drafts decide such tokens: they are plain decoding's in distribution only.
        is_drawn = of.engine.draws_drafts and request.temperature > 0
        plain = judge.plain[request.name] if is_drawn else whole[request.name]
        expected = cut(plain, request.stop_token)
        assert judge.plain[request.name] == expected
        delivered, finish = run.result.delivered[request.name], run.result.finished[request.name]
        if finish in ("abort", "unfinished"):
            assert delivered == expected[: len(delivered)]
            continue
        assert delivered == expected
        is_stopped = delivered[-1] == request.stop_token or len(delivered) == request.stop_after
        assert finish == ("stop" if is_stopped else "max_tokens")
        event(f"depth {of.engine.depth}, {finish}")


def test_the_reference_says_the_same() -> None:
    of = scenario("stop-token")
    run = run_reference(of)
    assert run.finished == {"A": "stop", "B": "stop", "C": "max_tokens"}
    for request in of.requests:
        assert run.delivered[request.name] == plain_decode(of, request)


def test_the_prompt_does_not_stop_a_request() -> None:
    of = scenario("stop-token")
    # C never delivers token 96, which now ends its prompt as well.
    last = of.requests[-1]
    request = msgspec.structs.replace(last, prompt=(*last.prompt, 96), stop_token=96)
    alone = msgspec.structs.replace(of, requests=(request,))
    judge = Checker(alone)
    assert judge.run().findings == ()
    assert len(judge.plain[request.name]) == request.max_tokens


def test_going_on_behind_the_stop_is_a_loss() -> None:
    judge = checker("stop-token")
    plain = judge.plain["A"]
    assert len(plain) == 8
    (loss,) = find_losses({"A": (*plain, 0)}, judge.plain, {"A": "max_tokens"})
    assert (loss.index, loss.expected, loss.actual) == (8, None, 0)
