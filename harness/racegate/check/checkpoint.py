"""Checkpoint: the state of a running engine, to be gone back to.

Walks everything mutable that can be reached from some roots and keeps its content by identity;
going back puts the content into the same objects. It knows no class: what is added to the engine is
captured without being told.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import msgspec
import numpy as np

# Caches and shared constants: not state.
SKIPPED_ATTRIBUTES = frozenset({"_access", "memo", "_memo", "backend"})

_LEAVES = (
    int,
    str,
    float,
    bytes,
    type(None),
    type,
    frozenset,
    FunctionType,
    BuiltinFunctionType,
    ModuleType,
    msgspec.Struct,
    np.dtype,
    np.generic,
)


class Checkpoint:
    """The state reachable from `roots` at the time of making. frozen: objects that never change."""

    def __init__(self, roots: Iterable[Any], *, frozen: Iterable[Any] = ()) -> None:
        self._seen: dict[int, Any] = {id(item): item for item in frozen}
        self._attributes: list[tuple[Any, str, Any]] = []
        self._lists: list[tuple[list[Any], list[Any]]] = []
        self._others: list[tuple[Any, Any]] = []  # dict, set, deque
        self._arrays: list[tuple[np.ndarray, np.ndarray]] = []
        pending = list(roots)
        while pending:
            item = pending.pop()
            if not isinstance(item, _LEAVES) and id(item) not in self._seen:
                self._seen[id(item)] = item  # kept, so that its identity is not used again
                pending.extend(self._keep(item))

    def restore(self) -> None:
        """Goes back."""
        for item, name, value in self._attributes:
            object.__setattr__(item, name, value)
        for items, content in self._lists:
            items[:] = content
        for holder, content in self._others:
            holder.clear()
            getattr(holder, "extend" if isinstance(holder, deque) else "update")(content)
        for array, values in self._arrays:
            array[...] = values

    def _keep(self, item: Any) -> Iterable[Any]:
        """Keeps one object's content; returns what can be reached from it."""
        if isinstance(item, MethodType):
            return (item.__self__,)
        if isinstance(item, tuple):
            return item
        if isinstance(item, np.ndarray):
            if item.flags.writeable:
                self._arrays.append((item, item.copy()))
            return ()
        if isinstance(item, list):
            self._lists.append((item, list(item)))
            return item
        if isinstance(item, dict | set | deque):
            self._others.append((item, item.copy()))
            return item.values() if isinstance(item, dict) else item
        return self._keep_object(item)

    def _keep_object(self, item: Any) -> list[Any]:
        names = [*_slots(type(item)), *getattr(item, "__dict__", ())]
        values = []
        for name in names:
            if name not in SKIPPED_ATTRIBUTES and hasattr(item, name):
                values.append(getattr(item, name))
                self._attributes.append((item, name, values[-1]))
        return values


def _slots(kind: type) -> list[str]:
    """The slots of a class and its bases."""
    names: list[str] = []
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ())
        names += [slots] if isinstance(slots, str) else slots
    return [name for name in names if not name.startswith("__")]
