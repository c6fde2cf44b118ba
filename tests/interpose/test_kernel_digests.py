"""A kernel's digest is another one wherever it may compute something else."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType

import pytest

from racegate.interpose.kernels.kept.digests import digest_of

HELPER = """
def twice(value):
    return value * 2
"""
KERNEL = """
import math
from helping import twice

LIMIT = 3


class InterpretedFunction:
    def __init__(self, fn):
        self.fn = fn

    def rewrite(self):
        return self.fn


helper = InterpretedFunction(twice)


def kernel(pointer, size=4):
    def inner(value):
        return value in {1, 2, 3}

    return helper(math.floor(pointer)) + LIMIT if inner(size) else 0
"""


@pytest.fixture(autouse=True)
def forget_modules() -> Iterator[None]:
    yield
    sys.modules.pop("helping", None)


def made(folder: Path, kernel: str = KERNEL, helper: str = HELPER) -> FunctionType:
    """The kernel of a module of its own."""
    sys.modules["helping"] = loaded(folder / "helping.py", helper)
    found = loaded(folder / "kernels.py", kernel).kernel
    assert isinstance(found, FunctionType)
    return found


def loaded(path: Path, text: str) -> ModuleType:
    spec = importlib.util.spec_from_loader(path.stem, loader=None)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    exec(compile(text, str(path), "exec"), module.__dict__)
    return module


def test_it_does_not_depend_on_where_the_kernel_stands(tmp_path: Path) -> None:
    plain = digest_of(made(tmp_path))
    assert plain and plain == digest_of(made(tmp_path / "elsewhere", "# a line\n" + KERNEL))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("LIMIT = 3", "LIMIT = 4"),
        ("size=4", "size=5"),
        ("+ LIMIT", "- LIMIT"),
        ("{1, 2, 3}", "{1, 2, 4}"),
        ("math.floor", "math.ceil"),
    ],
)
def test_what_a_kernel_says_and_uses_is_in_it(tmp_path: Path, old: str, new: str) -> None:
    assert old in KERNEL
    other = digest_of(made(tmp_path, KERNEL.replace(old, new)))
    assert other and other != digest_of(made(tmp_path))


def test_so_is_what_a_kernel_calls_in_another_file(tmp_path: Path) -> None:
    other = digest_of(made(tmp_path, helper=HELPER.replace("* 2", "* 3")))
    assert other and other != digest_of(made(tmp_path))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("LIMIT = 3", "LIMIT = [3]"),
        ("LIMIT = 3", "import json as LIMIT"),
        ("helper = InterpretedFunction(twice)", "helper = twice"),
        ("LIMIT = 3", "LIMIT = type('LIMIT', (), {})"),
    ],
)
def test_what_may_be_anything_has_none(tmp_path: Path, old: str, new: str) -> None:
    assert old in KERNEL
    assert digest_of(made(tmp_path, KERNEL.replace(old, new))) == ""


def test_neither_has_a_closure() -> None:
    limit = 3

    def kernel(value: int) -> int:
        return value + limit

    assert digest_of(kernel) == "" and digest_of(len) == ""


def test_functions_that_call_each_other_end(tmp_path: Path) -> None:
    text = KERNEL + "\n\ntwice = InterpretedFunction(kernel)\nhelper.fn = kernel\n"
    assert digest_of(made(tmp_path, text))
