"""The losslessness oracle, called with tokens: prefixes, and requests that were cut off."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from racegate.faults.catalogue import find_fault
from racegate.oracles.losslessness import Loss, find_losses, is_output_wrong
from support import checker

PLAIN = (5, 6, 7, 8)
ENDED = ("max_tokens", "stop")
CUT = ("abort", "unfinished")
ANY = (*ENDED, *CUT)


def loss_of(tokens: tuple[int, ...], reason: str) -> tuple[int, int | None, int | None] | None:
    """(index, expected, actual) of what one request lost."""
    losses = find_losses({"A": tokens}, {"A": PLAIN}, {"A": reason})
    if not losses:
        return None
    (loss,) = losses
    assert loss.request == "A"
    return loss.index, loss.expected, loss.actual


@pytest.mark.parametrize("reason", ANY)
def test_plain_decoding_is_right_however_a_request_ended(reason: str) -> None:
    assert loss_of(PLAIN, reason) is None


@pytest.mark.parametrize("reason", CUT)
@pytest.mark.parametrize("count", range(len(PLAIN)))
def test_a_request_that_was_cut_off_may_deliver_a_prefix(reason: str, count: int) -> None:
    assert loss_of(PLAIN[:count], reason) is None


@pytest.mark.parametrize("reason", ENDED)
@pytest.mark.parametrize("count", range(len(PLAIN)))
def test_a_request_that_ended_lacks_what_is_not_there(reason: str, count: int) -> None:
    assert loss_of(PLAIN[:count], reason) == (count, PLAIN[count], None)


@pytest.mark.parametrize("reason", ANY)
def test_what_comes_behind_the_end_is_too_much(reason: str) -> None:
    assert loss_of((*PLAIN, 9), reason) == (4, None, 9)


@pytest.mark.parametrize("reason", ANY)
def test_a_wrong_token_is_found_where_it_stands(reason: str) -> None:
    assert loss_of((5, 6, 0, 8), reason) == (2, 7, 0)


@pytest.mark.parametrize("reason", CUT)
def test_a_cut_does_not_excuse_a_wrong_token(reason: str) -> None:
    assert loss_of((5, 0), reason) == (1, 6, 0)


@pytest.mark.parametrize("reason", ANY)
def test_a_token_left_out_moves_all_behind_it(reason: str) -> None:
    assert loss_of((5, 7, 8), reason) == (1, 6, 7)


def test_each_request_is_looked_at_by_itself() -> None:
    delivered = {"A": PLAIN, "B": (1, 2), "C": (1,), "D": ()}
    plain = {"A": PLAIN, "B": (1, 3), "C": (1, 2), "D": (4,)}
    finished = {"A": "stop", "B": "max_tokens", "C": "abort", "D": "max_tokens"}
    assert find_losses(delivered, plain, finished) == [
        Loss(request="B", index=1, expected=3, actual=2),
        Loss(request="D", index=0, expected=4, actual=None),
    ]


tokens = st.lists(st.integers(0, 2), max_size=6).map(tuple)


@given(tokens, tokens, st.sampled_from(ANY))
def test_a_loss_is_the_first_index_at_which_the_two_disagree(
    delivered: tuple[int, ...], plain: tuple[int, ...], reason: str
) -> None:
    is_prefix = plain[: len(delivered)] == delivered
    may_be_short = reason in CUT
    losses = find_losses({"A": delivered}, {"A": plain}, {"A": reason})
    assert (losses == []) == (is_prefix and (may_be_short or len(delivered) == len(plain)))
    for loss in losses:
        assert delivered[: loss.index] == plain[: loss.index]
        assert loss.expected != loss.actual
        assert loss.expected == dict(enumerate(plain)).get(loss.index)
        assert loss.actual == dict(enumerate(delivered)).get(loss.index)


@pytest.mark.parametrize(
    ("delivered", "reason", "is_wrong"),
    [
        (PLAIN, "stop", False),
        (PLAIN[:2], "abort", False),
        ((9,), "abort", False),
        (PLAIN[:2], "unfinished", True),
        (PLAIN[:2], "max_tokens", True),
        ((5, 6, 7, 0), "stop", True),
    ],
)
def test_what_final_tokens_alone_would_notice(
    delivered: tuple[int, ...],
    reason: str,
    is_wrong: bool,  # noqa: FBT001
) -> None:
    assert is_output_wrong({"A": delivered}, {"A": PLAIN}, {"A": reason}) == is_wrong


def test_it_needs_no_observations() -> None:
    judge = checker("steady-mixed-accepts")
    run = judge.execute(fault=find_fault("correction-partial-fields"))
    assert run.result is not None
    assert find_losses(run.result.delivered, judge.plain, run.result.finished)
