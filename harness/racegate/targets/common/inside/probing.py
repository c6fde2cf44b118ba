"""Other expressions beside those of an engine's own source: which of them had the same value
wherever a run came by. An edit that puts such a one in the place of the engine's own changes
nothing in that run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, groupby
from pathlib import Path
from types import CodeType
from typing import Any

import numpy as np

from racegate.targets.common.inside.exchange import compiled, functions_of
from racegate.targets.common.wire import SourceProbe

_CALLED = "_racegate_probe"
# Of what is neither a number nor a text only the truth can be compared.
_PLAIN = (bool, int, float, str, type(None), np.generic)
_CONTAINERS = (list, dict, tuple, set, frozenset)
# Of what only computes; with another one the run fails, and nothing is said.
_ERRORS = (
    ArithmeticError, AttributeError, LookupError, NameError, RuntimeError, TypeError, ValueError
)  # fmt: skip
_Value = Callable[[], Any]


class ProbeTally:
    """What was found out of other expressions, which are known by their numbers."""

    def __init__(self) -> None:
        self._met: set[int] = set()
        self._unlike: set[int] = set()

    def value(self, first: int, own: _Value, *others: _Value, is_test: bool) -> Any:
        """The value of the engine's own expression. first: the number of the first other one

        is_test: only whether it is true decides anything
        """
        found = own()
        for number, other in enumerate(others, first):
            self._met.add(number)
            if number not in self._unlike and not _is_same(found, other, is_test=is_test):
                self._unlike.add(number)
        return found

    def alike(self) -> tuple[int, ...]:
        """The numbers of those that were evaluated, and had the same value each time."""
        return tuple(sorted(self._met - self._unlike))


def _is_same(found: Any, other: _Value, *, is_test: bool) -> bool:
    """Whether another expression is known to have this value: an error is another one, and of
    tensors nothing is asked, because that would be an operation.
    """
    known = (*_PLAIN, *_CONTAINERS) if is_test else _PLAIN
    if not isinstance(found, known):
        return False
    try:
        value = other()
    except _ERRORS:
        return False
    if not isinstance(value, known):
        return False
    if is_test:
        return bool(found) == bool(value)
    return type(found) is type(value) and bool(found == value)


def probe_sources(probes: Sequence[SourceProbe], log: ProbeTally) -> None:
    """Gives functions the code that evaluates the other expressions too. Numbers of others go
    through all probes, in their order.
    """
    counts = accumulate((len(probe.others) for probe in probes), initial=0)
    firsts = dict(zip(probes, counts, strict=False))
    for name, some in groupby(sorted(probes, key=lambda one: one.module), lambda one: one.module):
        module = sys.modules.get(name)
        if module is None:
            continue
        path = Path(str(module.__file__))
        source = path.read_bytes()
        for probe in sorted(some, key=lambda one: one.start, reverse=True):
            source = probe.put_into(source, _CALLED, firsts[probe])
        code = {_place(one): one for one in _every(compiled(source, path))}
        vars(module)[_CALLED] = log.value
        for function in list(functions_of(module)):
            new = code.get(_place(function.__code__))
            if new is not None and new.co_freevars == function.__code__.co_freevars:
                function.__code__ = new


def _place(code: CodeType) -> tuple[str, int]:
    return code.co_qualname, code.co_firstlineno


def _every(code: CodeType) -> Iterator[CodeType]:
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield one
            yield from _every(one)
