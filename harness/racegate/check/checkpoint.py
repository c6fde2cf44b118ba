"""Checkpoint: the state of a running engine, to be gone back to.

Walks everything that can be reached from some roots and keeps what can change, by identity; going
back puts the content into the same objects. It knows kinds of objects and no class of the engine:
what is added there is captured without being told, and what it cannot go back to it refuses.
"""

from __future__ import annotations

import operator
import re
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from enum import Enum
from functools import cache, partial
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    MethodType,
    MethodWrapperType,
    ModuleType,
)
from typing import Any, TypeVar

import msgspec
import numpy as np
from msgspec import inspect

from racegate.device.virtual.compiled import compiled_walk

# What never changes and leads nowhere.
_CONSTANTS = (
    int,
    str,
    float,
    complex,
    bytes,
    range,
    slice,
    type(None),
    type(Ellipsis),
    type,
    Enum,
    ModuleType,
    CodeType,
    re.Pattern,
    operator.itemgetter,
    np.dtype,
    np.generic,
    np.ufunc,
)
_MISSING = object()


class CheckpointError(Exception):
    """State that cannot be gone back to: says where it is, of what type, and what to do."""


T = TypeVar("T")
# Objects of any kind, with what is kept of each behind it.
_Flat = list[Any]


class Checkpoint:
    """The state reachable from `roots` at the time of making. frozen: objects that never change.

    What is many stands flat in lists: (object, name, value) of slots, (object, content) of others.
    Raises CheckpointError.
    """

    def __init__(self, roots: Iterable[object], *, frozen: Iterable[object] = ()) -> None:
        # Kept, so that no identity is used again.
        self._seen: dict[int, object] = {id(item): item for item in frozen}
        self._slots: _Flat = []
        self._unset: _Flat = []
        self._fields: list[tuple[msgspec.Struct, str, object]] = []
        self._lists: _Flat = []
        self._dicts: _Flat = []
        self._mappings: list[tuple[dict[object, object], dict[object, object]]] = []
        self._sets: list[tuple[set[object], set[object]]] = []
        self._deques: list[tuple[deque[object], deque[object]]] = []
        self._arrays: list[tuple[np.ndarray, np.ndarray]] = []
        self._plain: set[type] = set()
        self._in_c = compiled_walk()
        if self._in_c is None:
            self._walk(list(roots))
        else:
            known = (self._seen, self._lists, self._dicts, self._slots, self._unset)
            walk_from, _ = self._in_c
            walk_from(list(roots), _coded_ways(), _coded_way, *known, self)

    def _walk(self, pending: list[object]) -> None:
        """Keeps all that can be reached. `native/walk.c` does the same."""
        while pending:
            item = pending.pop()
            kind: type = type(item)
            keep = _way_to_keep(kind)
            if keep is not None and id(item) not in self._seen:
                self._seen[id(item)] = item
                pending.extend(keep(self, item))

    def restore(self) -> None:
        """Goes back."""
        if self._in_c is None:
            self._put_back()
        else:
            _, put_back = self._in_c
            put_back(self._lists, self._dicts, self._slots)
        for item, name in _groups(self._unset, 2):
            if hasattr(item, name):
                object.__delattr__(item, name)
        for struct, name, value in self._fields:
            setattr(struct, name, value)
        for mapping, entries in self._mappings:
            mapping.clear()
            mapping.update(entries)
        for members, group in self._sets:
            members.clear()
            members.update(group)
        for queue, waiting in self._deques:
            queue.clear()
            queue.extend(waiting)
        for array, values in self._arrays:
            array[...] = values

    def _put_back(self) -> None:
        """What is many."""
        put = object.__setattr__
        for item, name, value in _groups(self._slots, 3):
            put(item, name, value)
        for items, content in _groups(self._lists, 2):
            items[:] = content
        for mapping, entries in _groups(self._dicts, 2):
            mapping.clear()
            mapping.update(entries)

    def keep_array(self, item: np.ndarray) -> Iterable[object]:
        """Its values, unless it is read-only."""
        if item.dtype.hasobject:
            raise CheckpointError(self._refusal(item))
        if item.flags.writeable:
            self._arrays.append((item, item.copy()))
        return ()

    def keep_list(self, item: list[object]) -> Iterable[object]:
        """Its members."""
        content = item.copy()
        self._lists += (item, content)
        return _changing(content)

    def keep_dict(self, item: dict[object, object]) -> Iterable[object]:
        """Its entries."""
        if type(item) is dict:
            self._dicts += (item, item.copy())
        else:
            self._mappings.append((item, item.copy()))
        return (*_changing(item.keys()), *_changing(item.values()))

    def keep_set(self, item: set[object]) -> Iterable[object]:
        """Its members."""
        self._sets.append((item, item.copy()))
        return _changing(item)

    def keep_deque(self, item: deque[object]) -> Iterable[object]:
        """Its members."""
        self._deques.append((item, item.copy()))
        return _changing(item)

    def keep_struct(self, item: msgspec.Struct) -> Iterable[object]:
        """Its fields, unless it is frozen."""
        values = [getattr(item, name) for name in item.__struct_fields__]
        if not item.__struct_config__.frozen:
            pairs = zip(item.__struct_fields__, values, strict=True)
            self._fields += [(item, name, value) for name, value in pairs]
        return values

    def keep_function(self, item: FunctionType) -> Iterable[object]:
        """What it is closed over, its defaults and attributes."""
        return (item.__closure__, item.__defaults__, item.__kwdefaults__, item.__dict__)

    def keep_cell(self, item: CellType) -> Iterable[object]:
        """A variable of a function that a function inside it uses."""
        return self._keep_slots(item, ("cell_contents",))

    def keep_object(self, item: object) -> Iterable[object]:
        """Attributes in slots, and the dictionary of the others, a container like any other."""
        kind: type = type(item)
        if kind not in self._plain:
            if not _is_plain(item):
                raise CheckpointError(self._refusal(item))
            self._plain.add(kind)
        return (getattr(item, "__dict__", None), *self._keep_slots(item, _slots(kind)))

    def _keep_slots(self, item: object, names: Iterable[str]) -> list[object]:
        values = []
        for name in names:
            value = _slot_value(item, name)
            if value is _MISSING:
                self._unset += (item, name)
            else:
                self._slots += (item, name, value)
                values.append(value)
        return values

    def _refusal(self, item: object) -> str:
        kind = type(item)
        return (
            f"cannot go back to the state of a {kind.__module__}.{kind.__qualname__} "
            f"({self._place_of(item)}): it is not in attributes that can be read and set; keep it "
            "in plain attributes, lists, dicts, sets, deques or arrays"
        )

    def _place_of(self, item: object) -> str:
        """Where something was reached from."""
        for holder, name, value in (*_groups(self._slots, 3), *self._fields):
            if value is item:
                return f"{type(holder).__qualname__}.{name}"
        for owner in self._seen.values():
            attributes = getattr(owner, "__dict__", None)
            for name, value in attributes.items() if isinstance(attributes, dict) else ():
                if value is item:
                    return f"{type(owner).__qualname__}.{name}"
        for owner in self._seen.values():
            if isinstance(owner, list | tuple | deque | dict):
                held = owner.values() if isinstance(owner, dict) else owner
                if any(value is item for value in held):
                    return f"in {self._place_of(owner)}"
        return "reached from a root"


def _groups(flat: list[T], size: int) -> Iterator[tuple[T, ...]]:
    """What stands flat in a list, so many at a time."""
    return zip(*[iter(flat)] * size, strict=True)


def _slot_value(item: object, name: str) -> object:
    try:
        return object.__getattribute__(item, name)
    except (AttributeError, ValueError):  # a slot, or a cell, without a value
        return _MISSING


# Keeps what can change of one object, and returns what can be reached from it.
_Keep = Callable[[Checkpoint, Any], Iterable[object]]

# What keeps an object, by its class itself: another kind of list may hold more than a list.
_WAYS: Mapping[type, _Keep] = {
    np.ndarray: Checkpoint.keep_array,
    list: Checkpoint.keep_list,
    dict: Checkpoint.keep_dict,
    OrderedDict: Checkpoint.keep_dict,
    defaultdict: Checkpoint.keep_dict,
    Counter: Checkpoint.keep_dict,
    set: Checkpoint.keep_set,
    frozenset: lambda _, item: _changing(item),
    deque: Checkpoint.keep_deque,
    FunctionType: Checkpoint.keep_function,
    CellType: Checkpoint.keep_cell,
    MethodType: lambda _, item: (item.__self__, item.__func__),
    BuiltinFunctionType: lambda _, item: (item.__self__,),
    MethodWrapperType: lambda _, item: (item.__self__,),
    partial: lambda _, item: (item.func, item.args, item.keywords),
}


@cache
def _way_to_keep(kind: type) -> _Keep | None:
    """What keeps objects of a class; None if they never change and lead nowhere."""
    if issubclass(kind, _CONSTANTS):
        return None
    if issubclass(kind, msgspec.Struct):
        return None if _is_constant(kind) else Checkpoint.keep_struct
    if issubclass(kind, tuple):
        return _WAYS[frozenset]
    way: _Keep = _WAYS.get(kind, Checkpoint.keep_object)
    return way


# What `native/walk.c` does itself.
_CODES: Mapping[type, int] = {list: 1, dict: 2}
_TUPLE = 3
_CodedWay = int | tuple[str | None, ...] | _Keep | None


@cache
def _coded_ways() -> dict[type, _CodedWay]:
    """`_coded_way` of the classes that were seen."""
    return {}


def _coded_way(item: object) -> _CodedWay:
    """What the walk in C does with objects of the class of this one: None, if they never change and
    lead nowhere; a number, where it knows the kind; the names of what it keeps of others, behind
    that of the dictionary if there is one; or what it calls.
    """
    kind: type = type(item)
    keep = _way_to_keep(kind)
    if keep is None or kind in _CODES:
        return keep and _CODES[kind]
    if isinstance(item, tuple):
        return _TUPLE
    if keep is Checkpoint.keep_object and _is_plain(item):
        return ("__dict__" if hasattr(item, "__dict__") else None, *_slots(kind))
    return keep


def _changing(members: Collection[object]) -> Collection[object]:
    """The members, unless all are of classes whose objects never change: long lists often are."""
    return members if any(map(_way_to_keep, set(map(type, members)))) else ()


def never_changes(kind: type) -> bool:
    """Whether objects of a class have one value for ever, and lead to nothing that has not."""
    return _way_to_keep(kind) is None


@cache
def _slots(kind: type) -> tuple[str, ...]:
    """The slots of a class and its bases."""
    names: list[str] = []
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ())
        names += [slots] if isinstance(slots, str) else slots
    return tuple(name for name in names if not name.startswith("__"))


def _is_plain(item: object) -> bool:
    """Whether all state of an object is in its attributes, by what Python asks before it pickles
    one: no hidden memory of a compiled type, and no way of its own to tell its state.
    """
    kind = type(item)
    if is_dataclass(kind):
        return True
    if issubclass(kind, list | dict | set):
        return False
    own = ("__reduce__", "__reduce_ex__", "__getstate__")
    if any(getattr(kind, name) is not getattr(object, name) for name in own):
        return False
    try:
        object.__reduce_ex__(item, 2)
    except TypeError:
        return False
    return True


@cache
def _is_constant(kind: type) -> bool:
    """Whether nothing that a Struct of this class holds can change, by its fields' types."""
    try:
        return _never_changes(inspect.type_info(kind))
    except TypeError:  # a field of a type that msgspec does not know
        return False


def _never_changes(info: inspect.Type) -> bool:
    match info:
        case inspect.StructType(cls=cls, fields=fields):
            is_frozen = cls.__struct_config__.frozen
            return is_frozen and all(_never_changes(field.type) for field in fields)
        case inspect.TupleType(item_types=types) | inspect.UnionType(types=types):
            return all(map(_never_changes, types))
        case inspect.VarTupleType(item_type=one) | inspect.FrozenSetType(item_type=one):
            return _never_changes(one)
    return isinstance(
        info,
        inspect.BoolType
        | inspect.IntType
        | inspect.FloatType
        | inspect.StrType
        | inspect.BytesType
        | inspect.NoneType
        | inspect.EnumType
        | inspect.LiteralType,
    )
