"""Grammar masks on the host, and what constrained rows deliver."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from racegate.check.checker import Checker
from racegate.engine.decode.grammar import allowed, packed
from racegate.history.schedule import LATE
from racegate.scenario.expect import Expect
from racegate.scenario.settings import DrafterKind
from racegate_kernels.backend import EAGER
from support import checker, scenario

NAME = "constrained-rows"


@given(
    before=st.lists(st.lists(st.integers(0, 99), min_size=2, max_size=2), min_size=1, max_size=4),
    modulus=st.integers(0, 9),
    vocab_size=st.sampled_from([1, 5, 31, 32, 33, 97]),
)
def test_a_bit_says_whether_a_token_may_follow(
    before: list[list[int]], modulus: int, vocab_size: int
) -> None:
    tokens = np.array(before, np.int32)
    moduli = np.full(len(before), modulus, np.int64)
    words = packed(allowed(tokens, moduli, vocab_size))
    assert words.dtype == np.int32
    for row, column in np.ndindex(tokens.shape):
        for v in range(vocab_size):
            bit = int(words[row, column, v // 32]) >> v % 32 & 1
            forbidden = modulus > 0 and (v - int(tokens[row, column])) % modulus == 0
            assert bit == (not forbidden)


def test_the_kernel_reads_the_bits_as_they_are_packed() -> None:
    bits = allowed(np.array([[3, 8]], np.int32), np.array([4], np.int64), 97)
    logits = np.ones((1, 2, 97), np.uint32)
    EAGER.mask_logits(logits, packed(bits))
    assert np.array_equal(logits != 0, bits)


def test_nothing_forbidden_is_delivered_and_free_rows_are_free() -> None:
    run = checker(NAME).execute(schedule=LATE)
    assert run.result is not None
    for request in scenario(NAME).requests:
        tokens = (*request.prompt, *run.result.delivered[request.name])
        steps = np.diff(tokens)[len(request.prompt) - 1 :]
        assert len(steps) > 0
        if request.grammar_modulus:
            assert (steps % request.grammar_modulus != 0).all()
        else:
            assert (steps % 2 == 0).any()


@pytest.mark.parametrize("drafter", DrafterKind)
def test_with_every_drafter(drafter: DrafterKind) -> None:
    of = scenario(NAME)
    k = {DrafterKind.NONE: 0, DrafterKind.EXTRACT_HIDDEN_STATES: 1}.get(drafter, 3)
    engine = msgspec.structs.replace(of.engine, drafter=drafter, draft_len_max=k)
    turned = msgspec.structs.replace(of, engine=engine, expect=Expect())
    for schedule in (LATE, None):
        result = Checker(turned).run() if schedule is None else Checker(turned).run(schedule=LATE)
        assert result.findings == ()
    assert result.stats.exercised["masked_rows"] > 0
