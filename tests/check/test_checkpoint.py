"""A checkpoint goes back to everything, or says what it cannot go back to."""

from __future__ import annotations

import itertools
import random
import threading
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec
import numpy as np
import pytest

from racegate.check.checkpoint import Checkpoint, CheckpointError
from racegate.device.virtual.compiled import COMPILED_VARIABLE, compiled_walk


@pytest.fixture(autouse=True, params=["in C", "in Python"])
def walk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The walk that checkpoints are made by: both have to go back to the same."""
    monkeypatch.setenv(COMPILED_VARIABLE, "1" if request.param == "in C" else "0")
    assert (compiled_walk() is None) == (request.param == "in Python")


class Plain:
    """An object with whatever attributes it is given."""

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


class Slotted:
    """One attribute that has a value, and one that has none yet."""

    __slots__ = ("later", "value")

    def __init__(self, value: Any) -> None:
        self.value = value


class Mutable(msgspec.Struct):
    """A Struct whose fields can be set."""

    count: int
    items: list[int]


class Frozen(msgspec.Struct, frozen=True):
    """A frozen Struct around something that can change."""

    items: list[int]
    other: Any = None


@dataclass(slots=True)
class Data:
    """Fields in slots."""

    items: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class FrozenData:
    """A frozen one around something that can change."""

    items: list[int]


def goes_back(root: Any, change: Callable[[Any], object], read: Callable[[Any], Any]) -> None:
    before = msgspec.json.encode(read(root))
    checkpoint = Checkpoint([root])
    for _ in range(2):
        change(root)
        assert msgspec.json.encode(read(root)) != before
        checkpoint.restore()
        assert msgspec.json.encode(read(root)) == before


CHANGES: dict[str, tuple[Any, Callable[[Any], object], Callable[[Any], Any]]] = {
    "attribute": (Plain(a=1), lambda o: setattr(o, "a", 2), lambda o: o.a),
    "an attribute named memo": (
        Plain(memo=[1], _memo={}, backend=[], _access={}),
        lambda o: (
            o.memo.append(2),
            o._memo.update(a=1),
            o.backend.append(1),
            o._access.update(b=1),
        ),
        lambda o: [o.memo, o._memo, o.backend, o._access],
    ),
    "attribute that is new": (Plain(), lambda o: setattr(o, "a", 2), lambda o: vars(o)),
    "attribute that goes": (Plain(a=1), lambda o: delattr(o, "a"), lambda o: vars(o)),
    "slot": (Slotted(1), lambda o: setattr(o, "value", 2), lambda o: o.value),
    "slot without a value": (
        Slotted(1),
        lambda o: setattr(o, "later", 2),
        lambda o: hasattr(o, "later"),
    ),
    "mutable Struct": (
        Mutable(1, []),
        lambda o: (setattr(o, "count", 2), o.items.append(1)),
        lambda o: [o.count, o.items],
    ),
    "list in a frozen Struct": (Frozen([]), lambda o: o.items.append(1), lambda o: o.items),
    "object in a frozen Struct": (
        Frozen([], Plain(a=1)),
        lambda o: setattr(o.other, "a", 2),
        lambda o: o.other.a,
    ),
    "dataclass": (Data(), lambda o: o.items.append(1), lambda o: o.items),
    "list in a frozen dataclass": (FrozenData([]), lambda o: o.items.append(1), lambda o: o.items),
    "list": ([1, 2], lambda o: o.pop(), lambda o: o),
    "dict": ({"a": [1]}, lambda o: o["a"].append(2), lambda o: o),
    "order of a dict": ({"a": 1, "b": 2}, lambda o: o.update(a=o.pop("a")), lambda o: list(o)),
    "object as a key": (
        {Plain(a=1): 0},
        lambda o: setattr(next(iter(o)), "a", 2),
        lambda o: next(iter(o)).a,
    ),
    "other dicts": (
        [Counter(a=1), OrderedDict(a=1), defaultdict(list)],
        lambda o: (o[0].update("ab"), o[1].update(b=1), o[2]["x"].append(1)),
        lambda o: o,
    ),
    "set": ({1}, lambda o: o.add(2), lambda o: sorted(o)),
    "object in a frozenset": (
        frozenset({Slotted(1)}),
        lambda o: setattr(next(iter(o)), "value", 2),
        lambda o: next(iter(o)).value,
    ),
    "deque": (deque([1]), lambda o: o.append(2), lambda o: list(o)),
    "array": (np.zeros(2), lambda o: o.fill(1), lambda o: o.tolist()),
    "argument of a partial": (
        partial(print, [1]),
        lambda o: o.args[0].append(2),
        lambda o: o.args[0],
    ),
    "owner of a method": ([1].append, lambda o: o(2), lambda o: o.__self__),
}


@pytest.mark.parametrize("name", CHANGES)
def test_it_goes_back(name: str) -> None:
    goes_back(*CHANGES[name])


def test_it_goes_back_to_what_a_function_is_closed_over() -> None:
    calls: list[int] = []
    count = 0

    def call() -> None:
        nonlocal count
        count += 1
        calls.append(count)

    goes_back(Plain(call=call), lambda o: o.call(), lambda o: [count, calls])


def test_what_is_frozen_is_left_alone() -> None:
    kept, root = [1], Plain(items=[1])
    root.kept = kept
    checkpoint = Checkpoint([root], frozen=[kept])
    root.items.append(2)
    kept.append(2)
    checkpoint.restore()
    assert (root.items, kept) == ([1], [1, 2])


class OtherList(list[int]):
    """A list that could hold more than a list."""


def numbers() -> Iterator[int]:
    yield 1


REFUSED: dict[str, Any] = {
    "itertools.count": itertools.count(),
    "random.Random": random.Random(1),
    "numpy.random": np.random.default_rng(1),
    "bytearray": bytearray(b"a"),
    "memoryview": memoryview(b"a"),
    "generator": numbers(),
    "iterator": iter([1]),
    "lock": threading.Lock(),
    "another kind of list": OtherList(),
    "array of objects": np.array([[], {}], dtype=object),
    "view of a dict": {}.keys(),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("attribute", ["state", "memo"])
def test_what_it_does_not_know_it_refuses(name: str, attribute: str) -> None:
    value = REFUSED[name]
    root = Plain(holder=Plain(**{attribute: value}))
    with pytest.raises(CheckpointError) as refused:
        Checkpoint([root])
    kind = type(value)
    assert f"{kind.__module__}.{kind.__qualname__} (Plain.{attribute})" in str(refused.value)


@pytest.mark.parametrize("holder", [[[itertools.count()]], {"a": (itertools.count(),)}])
def test_it_says_where_inside_a_container(holder: Any) -> None:
    with pytest.raises(CheckpointError, match=r"in in Plain\.items"):
        Checkpoint([Plain(items=holder)])


def test_it_says_where_in_slots_and_fields() -> None:
    with pytest.raises(CheckpointError, match=r"Slotted\.value"):
        Checkpoint([Slotted(itertools.count())])
    with pytest.raises(CheckpointError, match=r"reached from a root"):
        Checkpoint([itertools.count()])
