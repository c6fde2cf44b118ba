"""What an operator puts in the place of what, and how a mutant gets into a process."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from racegate.measure.evaluation.source.exchange import exchange
from racegate.measure.evaluation.source.operators import edits_of
from racegate.measure.evaluation.source.results import SourceOperator

# By operator: a line, and all that it may become under it.
OFFERED = [
    (SourceOperator.COMPARISON, "a < b", {"a <= b"}),
    (SourceOperator.COMPARISON, "a is not b in c", {"a is b in c", "a is not b not in c"}),
    (SourceOperator.ARITHMETIC, "a + b * c", {"a - b * c", "a + b // c"}),
    (SourceOperator.ARITHMETIC, "x -= ~y", {"x += ~y", "x -= y"}),
    (SourceOperator.ARITHMETIC, "a * (b + c)", {"a // (b + c)", "a * (b - c)"}),
    (SourceOperator.BOOLEAN, "a and (b or c)", {"a or (b or c)", "a and (b and c)"}),
    (SourceOperator.CONSTANT, "a[-1]", {"a[-2]", "a[-0]"}),
    (
        SourceOperator.CONSTANT,
        "x = 0x10, True",
        {"x = 0x11, True", "x = 0xf, True", "x = 0x10, False"},
    ),
    (SourceOperator.CONSTANT, "a[0]", {"a[1]", "a[-1]"}),
    (SourceOperator.CONDITION, "x = a if b > c else d", {"x = a if not (b > c) else d"}),
    (SourceOperator.CONDITION, "x = [a for a in b if a]", {"x = [a for a in b if not (a)]"}),
    (SourceOperator.CONDITION, "x = a if b == c else d", set()),
    (SourceOperator.STATEMENT, "f(a)", {"pass"}),
    (SourceOperator.STATEMENT, "x.y = f(a)", {"pass"}),
    (SourceOperator.STATEMENT, "x[0] += 1", {"pass"}),
    (SourceOperator.STATEMENT, "raise ValueError(1 + 1)", {"pass"}),
    (SourceOperator.STATEMENT, "x = f(a)", set()),
    (SourceOperator.ARGUMENTS, "f(a, b + 1, c)", {"f(b + 1, a, c)"}),
    (SourceOperator.ARGUMENTS, "f(a, a)", set()),
    (SourceOperator.ARGUMENTS, "max(a, b)", set()),
    (SourceOperator.ARGUMENTS, "f(a, *b)", set()),
    (SourceOperator.SLICE, "a[b:c]", {"a[:c]", "a[b:]"}),
    (SourceOperator.CHOICE, "x = min(a, b + c)", {"x = max(a, b + c)", "x = a", "x = (b + c)"}),
    (SourceOperator.CHOICE, "x = np.maximum(a, b)", {"x = np.minimum(a, b)", "x = a", "x = b"}),
    (SourceOperator.CHOICE, "x = any(a)", {"x = all(a)"}),
    (SourceOperator.WRAPPER, "x = sorted(a)", {"x = a"}),
    (SourceOperator.WRAPPER, "x = sorted(a, key=b)", set()),
    (SourceOperator.STEP, "x = a[self.step]", {"x = a[(self.step - 1)]"}),
    (SourceOperator.STEP, "f(step, step=step)", {"f((step - 1), step=step)"}),
    (SourceOperator.ROW, "x = a[row]", {"x = a[(row - 1)]"}),
    (SourceOperator.ROW, "x = f(a.row_of) + a.row_to", {
        "x = f(a.row_to) + a.row_to", "x = f(a.row_of) + a.row_of"}),
    (SourceOperator.STALE, "x = f(a.prev_count) + a.count", {
        "x = f(a.count) + a.count", "x = f(a.prev_count) + a.prev_count"}),
    (SourceOperator.STALE, "x = f(a.count) + b.prev_count", set()),
    (SourceOperator.FIELD, "x = [a for a in (b, c)]", {
        "x = [a for a in (b,)]", "x = [a for a in (c,)]"}),
    (SourceOperator.FIELD, "a[0], a[1] = a[1], a[0]", {"a[0] = a[1]", "a[1] = a[0]"}),
    (SourceOperator.FIELD, "a, b = b, a", set()),
    (SourceOperator.FIELD, "replace(a, b=c, d=e)", {"replace(a, b=c, )", "replace(a, d=e)"}),
    (SourceOperator.FIELD, "a.b[c] = a.b[d]", {"pass"}),
    (SourceOperator.CLAMP, "x = a.clip(0, b)", {"x = a", "x = a.clip(0, b + 1)"}),
    (SourceOperator.CLAMP, "x = min(a, b)", {"x = min(a, b + 1)"}),
    (SourceOperator.CLAMP, "x = min(a, b,)", {"x = min(a, b + 1,)"}),
    (SourceOperator.BRANCH, "x = a if b else -c.d", {"x = a", "x = -c.d"}),
    (SourceOperator.BRANCH, "x = np.where(a, b, -1).max()", {"x = b.max()", "x = (-1).max()"}),
    (SourceOperator.BRANCH, "x = a and b", {"x = a", "x = b"}),
    (SourceOperator.BRANCH, "x = (a := b) and c", {"x = (a := b)", "x = c"}),
    (SourceOperator.BRANCH, "x = a and (b\n or c)", {
        "x = a", "x = (b or c)", "x = a and (b)", "x = a and (c)"}),
    (SourceOperator.RESET, "a.b = None", {"pass"}),
    (SourceOperator.RESET, "a.clear()", {"pass"}),
]  # fmt: skip


def offered(line: str, operator: SourceOperator) -> list[str]:
    source = f"{line}\n".encode()
    return [edit.shown(source)[1] for edit in edits_of(source) if edit.operator is operator]


def _name(value: object) -> str:
    """The same in every process: a set has no order."""
    return " | ".join(sorted(value)) if isinstance(value, set) else str(value)


@pytest.mark.parametrize(("operator", "line", "others"), OFFERED, ids=_name)
def test_an_operator_offers(operator: SourceOperator, line: str, others: set[str]) -> None:
    found = offered(line, operator)
    assert set(found) == others
    assert len(found) == len(others), "offered twice"


def test_an_edge_case_is_never_met_but_an_error_is_no_edge_case() -> None:
    source = b"if a:\n    b = 1\nif a:\n    raise\n"
    found = [each for each in edits_of(source) if each.operator is SourceOperator.BRANCH]
    assert [each.apply(source) for each in found] == [source.replace(b"a", b"False", 1)]


def test_loops_go_on_or_end() -> None:
    source = b"for a in b:\n    break\n"
    found = [edit.apply(source) for edit in edits_of(source)]
    assert found == [b"for a in b:\n    continue\n", b"for a in b:\n    pass\n"]


@pytest.mark.parametrize(
    "source",
    [
        "import a.b as c\n",
        "x: tuple[int, 3]\n",
        "assert a < 1, b + c\n",
        '"""1 < 2"""\n',
        "x = f'{a + 1}'\n",
        "@cache(1)\nclass A: ...\n",
        "x = zip(a, strict=True)\n",
        "class A(Struct, frozen=True): ...\n",
        "BLOCK = 128\n",
        "TURN = tl.constexpr(2 * x)\n",
        "@triton.jit\ndef f(a):\n    a[1] = 2\n",
        "def f_triton(a):\n    a[1] = 2\n",
    ],
)
def test_what_a_run_does_not_do_is_left(source: str) -> None:
    assert edits_of(source.encode()) == []


def test_an_edit_says_where_it_is() -> None:
    source = "class A:\n    def é(self):\n        return f(\n            1,\n        )\n".encode()
    one, other = edits_of(source)
    assert (one.scope, one.lines) == ("A.é", (3, 4))
    assert one.shown(source) == ("1,", "0,") and other.shown(source) == ("1,", "2,")
    assert one.apply(source) == source.replace(b"1,", b"0,")


MODULE = b"""
from functools import cached_property, lru_cache

SIZE = 3


def plain(a=2):
    return a + 1


@lru_cache
def remembered(a):
    return a + 4


def outer(a):
    def inner(b):
        return a + b

    return inner(1)


class Thing:
    field = 5

    @property
    def shown(self):
        return 6 + self.field

    @staticmethod
    def still(a):
        return a + 7

    @cached_property
    def kept(self):
        return 8 + self.field
"""


@pytest.fixture
def module(tmp_path: Path) -> Iterator[ModuleType]:
    path = tmp_path / "racegate_mutated.py"
    path.write_bytes(MODULE)
    spec = importlib.util.spec_from_file_location("racegate_mutated", path)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules["racegate_mutated"] = made
    spec.loader.exec_module(made)
    yield made
    del sys.modules["racegate_mutated"]


@pytest.mark.parametrize(
    ("before", "after", "call", "value"),
    [
        ("a + 1", "a - 1", "plain(2)", 1),
        ("a + b", "a - b", "outer(3)", 2),
        ("a + 4", "a - 4", "remembered.__wrapped__(4)", 0),
        ("6 + self", "6 - self", "thing.shown", 1),
        ("a + 7", "a - 7", "thing.still(7)", 0),
        ("8 + self", "8 - self", "thing.kept", 3),
    ],
)
def test_whoever_has_a_function_runs_the_mutant(
    module: ModuleType, before: str, after: str, call: str, value: int
) -> None:
    names = {**vars(module), "thing": module.Thing()}
    mutated = MODULE.replace(before.encode(), after.encode())
    assert mutated != MODULE
    assert exchange(module, MODULE, mutated)
    assert eval(call, names) == value


@pytest.mark.parametrize("before", ["SIZE = 3", "a=2", "field = 5"])
def test_what_an_import_does_is_not_exchanged(module: ModuleType, before: str) -> None:
    assert not exchange(
        module, MODULE, MODULE.replace(before.encode(), before[:-1].encode() + b"9")
    )
    assert (module.SIZE, module.plain(), module.Thing.field) == (3, 3, 5)


def test_what_a_function_remembers_is_forgotten(module: ModuleType) -> None:
    name = "racegate"
    sys.modules[f"{name}.mutated_for_a_test"] = module
    try:
        assert module.remembered(1) == 5
        assert exchange(module, MODULE, MODULE.replace(b"a + 4", b"a - 4"))
        assert module.remembered(1) == -3
    finally:
        del sys.modules[f"{name}.mutated_for_a_test"]
