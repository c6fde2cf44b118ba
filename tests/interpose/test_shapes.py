"""Shapes of results that were found out once: the same as torch says, call by call."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import pytest
import torch

from racegate.interpose.kernels import operators
from racegate.interpose.kernels.binding import Bound
from racegate.interpose.kernels.later import shapes_of, size_by_numbers
from racegate.interpose.kernels.shapes import Shapes
from racegate.interpose.native import factories

describe = cache(operators.describe)
ROW, COLUMN, WHOLE = torch.zeros(1, 3), torch.zeros(4, 1), torch.zeros(3, 4).t()
PICKED = torch.tensor([2, 0])
CALLS: tuple[tuple[str, list[Any], dict[str, Any]], ...] = (
    ("aten::add.Tensor", [ROW, COLUMN], {"alpha": 2}),
    ("aten::add.Tensor", [PICKED, 1], {}),
    ("aten::add.Tensor", [PICKED, 1.5], {}),
    ("aten::div.Tensor", [PICKED, 2], {}),
    ("aten::add_.Tensor", [WHOLE, COLUMN], {}),
    ("aten::neg", [WHOLE], {}),
    ("aten::index.Tensor", [WHOLE, [None, PICKED]], {}),
    ("aten::cat", [[ROW, WHOLE], 0], {}),
    ("aten::sum.dim_IntList", [WHOLE, [0]], {"dtype": torch.float64}),
    ("aten::max.dim", [WHOLE, 1], {}),
    ("aten::split_with_sizes_copy", [WHOLE, [1, 3]], {}),
    ("aten::add.out", [ROW, COLUMN], {"out": WHOLE}),
)


def bound_of(name: str, args: list[Any], kwargs: dict[str, Any]) -> Bound:
    """A call of its CPU kernel or, with a number in a tensor's place, of what takes one."""
    operator = describe(name)
    has_number = any(isinstance(args[i], (int, float)) for i in operator.tensors if i < len(args))
    bound = Bound(operator.with_number if has_number else operator.kernel or operator.overload)
    bound.args, bound.kwargs = list(args), dict(kwargs)
    return bound


def told(result: Any, given: Bound) -> object:
    """A result: which argument it is, or what it is like."""
    if not isinstance(result, torch.Tensor):
        return type(result), [told(item, given) for item in result]
    values = (*given.args, *given.kwargs.values())
    places = [place for place, value in enumerate(values) if value is result]
    return places or (result.size(), result.stride(), result.dtype, result.device.type)


def test_what_was_found_out_is_what_torch_says() -> None:
    first, second = Shapes(), Shapes()
    for call in CALLS:
        first.of(describe(call[0]), bound_of(*call))
    second.load(first.dump())
    for call in CALLS:
        operator, bound = describe(call[0]), bound_of(*call)
        expected = told(shapes_of(operator, bound), bound)
        assert told(first.of(operator, bound), bound) == expected
        assert told(second.of(operator, bound), bound) == expected
    assert not second.dump(), "nothing had to be found out again"


RANGES = [
    (start, end, step)
    for start in (-3, 0, 0.5, 7, 2**40)
    for end in (-4, 0, 1, 0.3, 2**40 + 5, 1e300, float("inf"))
    for step in (-2, 0, 1, 3, 0.1, 2**39, 1e299)
]
SIZED = [
    ("aten::eye.out", (3,)),
    ("aten::eye.m_out", (0, 4)),
    ("aten::eye.m_out", (-1, 4)),
    ("aten::linspace.out", (0, 1, 5)),
    ("aten::logspace.out", (0, 1.5, 4, 2.0)),
    ("aten::randperm.out", (4,)),
    *(("aten::arange.start_out", numbers) for numbers in RANGES),
    *(("aten::arange.start_out", numbers[:2]) for numbers in RANGES[::7]),
]


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.float64])
def test_a_size_that_numbers_give_is_what_the_kernel_gives(dtype: torch.dtype) -> None:
    told_by_numbers = 0
    for name, args in SIZED:
        out = torch.empty(0, dtype=dtype)
        size = size_by_numbers(name, list(args), [out])
        if size is None or prod(size) > 10_000:
            continue
        told_by_numbers += 1
        with suppress(RuntimeError):  # torch refuses the numbers, and tells it itself
            describe(name).overload(*args, out=out)
            assert tuple(out.size()) == size, (name, args)
    assert told_by_numbers > 20
    assert size_by_numbers("aten::randperm.out", [4], [torch.empty(0)]) is None


def test_another_default_type_is_another_call() -> None:
    shapes, operator = Shapes(), describe("aten::div.Tensor")
    bound = bound_of("aten::div.Tensor", [PICKED, 2], {})
    found = []
    for dtype in (torch.float32, torch.float64):
        torch.set_default_dtype(dtype)
        try:
            found.append(shapes.of(operator, bound).dtype)
        finally:
            torch.set_default_dtype(torch.float32)
    assert found == [torch.float32, torch.float64]


@pytest.mark.parametrize(
    ("name", "args", "kwargs"),
    [
        ("aten::add.out", [WHOLE, COLUMN], {"out": WHOLE}),
        ("aten::equal", [WHOLE, COLUMN], {}),
    ],
)
def test_a_tensor_given_twice_and_a_value_are_asked_for_again(
    name: str, args: list[Any], kwargs: dict[str, Any]
) -> None:
    shapes = Shapes()
    bound = bound_of(name, args, kwargs)
    if name == "aten::equal":
        with pytest.raises(NotImplementedError):
            shapes.of(describe(name), bound)
    else:
        assert shapes.of(describe(name), bound) is WHOLE
    assert not shapes.dump()


def test_no_tensor_of_racegate_is_made_by_what_a_program_may_replace() -> None:
    names = [name for name in vars(factories) if hasattr(torch, name)]
    made = re.compile(rf"\btorch\.({'|'.join(names)})\(")
    room = Path(factories.__file__).parents[1]
    assert "empty" in names
    assert {path.name for path in room.rglob("*.py") if made.search(path.read_text())} == set()
