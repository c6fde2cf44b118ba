"""The helper that makes one test of many cases."""

from __future__ import annotations

import pytest

from together import failures


def is_even(number: int) -> None:
    assert number % 2 == 0, "it is odd"


def test_every_case_that_fails_is_named_with_what_it_says() -> None:
    assert failures(is_even, [2, 4]) == []
    first, second = failures(is_even, [1, 2, 3], named=lambda number: f"case {number}")
    assert first.startswith("case 1: it is odd")
    assert second.startswith("case 3: it is odd")


def test_what_is_no_assertion_goes_on() -> None:
    with pytest.raises(ZeroDivisionError):
        failures(lambda number: print(1 // number), [0])
