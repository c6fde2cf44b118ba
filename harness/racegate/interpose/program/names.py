"""Which variable or attribute of the program holds the bytes at an address."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import FrameType, ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch

from racegate.history.finding import place_name
from racegate.interpose.device.frames import is_compiled_file, is_program_file
from racegate.interpose.device.session import Session
from racegate.interpose.kernels.aliases import is_plain, parts_of

_DEPTH_MAX = 4
_LOOKED_AT_MAX = 4000
_ITEMS_MAX = 64


def buffer_name(session: Session, address: int, end: int) -> str:
    """The expression that holds the bytes from an address to an end now, with the rows that these
    are of, else where the memory was asked for.
    """
    for is_wanted in (is_program_file, is_compiled_file):
        for frame in _frames(session, is_wanted):
            found = _search(frame, address)
            if found is not None:
                rows = rows_of(found.value, address, end)
                function = frame.f_code.co_qualname
                where = function if is_wanted is is_program_file else "of a compiled region"
                return f"{found.name}{rows} ({where})"
    site = session.allocation_sites.find(address)
    if site is not None and site[2]:
        return f"memory asked for at {place_name(site[2])}"
    return f"memory at {address:#x}"


def _frames(session: Session, is_wanted: Callable[[str], bool]) -> Iterator[FrameType]:
    """The frames of files that are wanted, innermost first: of this thread, else the main one."""
    seen = False
    for first in (sys._getframe(1), session.main_frame()):
        frame = None if seen else first
        while frame is not None:
            if is_wanted(frame.f_code.co_filename):
                seen = True
                yield frame
            frame = frame.f_back


class _Named(NamedTuple):
    name: str
    value: Any


def rows_of(value: Any, address: int, end: int) -> str:
    """Which part of the first dimension of a tensor these bytes lie in, as an index; empty if that
    is all of it, or not known.
    """
    if not isinstance(value, torch.Tensor) or not value.dim() or not value.is_contiguous():
        return ""
    row_nbytes = value.stride(0) * value.element_size()
    first, past = address - value.data_ptr(), end - value.data_ptr()
    if first < 0 or past > value.nbytes or not row_nbytes:
        return ""
    low, high = first // row_nbytes, (past - 1) // row_nbytes + 1
    if high - low == len(value):
        return ""
    return f"[{low}]" if high == low + 1 else f"[{low}:{high}]"


def _search(frame: FrameType, address: int) -> _Named | None:
    """The shortest expression that holds an address."""
    for name, value in expressions(frame):
        with suppress(Exception):
            if _holds(value, address):
                return _Named(name, value)
    return None


def expressions(frame: FrameType) -> Iterator[tuple[str, Any]]:
    """What the names of a frame lead to, breadth first, so that the shortest expression of a value
    comes first.
    """
    scope = dict(frame.f_locals)
    queue: list[tuple[str, Any, int]] = [(name, value, 0) for name, value in scope.items()]
    if frame.f_globals is not frame.f_locals:
        queue += [(name, value, 0) for name, value in frame.f_globals.items()]
    seen: set[int] = set()
    for name, value, depth in queue:  # grows while it is read
        if id(value) in seen or len(seen) > _LOOKED_AT_MAX or name.startswith("__"):
            continue
        seen.add(id(value))
        yield name, value
        if depth < _DEPTH_MAX:
            # Objects of the program answer as they like: a dead weak reference raises at any
            # question.
            with suppress(Exception):
                queue.extend((child, item, depth + 1) for child, item in _children(name, value))


def _holds(value: Any, address: int) -> bool:
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided or value.device.type not in ("cpu", "cuda"):
            return False
        if not is_plain(type(value)):
            return False
        storage = value.untyped_storage()
        return bool(storage.data_ptr() <= address < storage.data_ptr() + storage.nbytes())
    if isinstance(value, np.ndarray) and value.size:
        low, high = np.lib.array_utils.byte_bounds(value)
        return bool(low <= address < high)
    return False


def _children(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, (list, tuple)):
        yield from ((f"{name}[{i}]", item) for i, item in enumerate(value[:_ITEMS_MAX]))
    elif isinstance(value, dict):
        items = list(value.items())[:_ITEMS_MAX]
        yield from (
            (f"{name}[{key!r}]", item) for key, item in items if isinstance(key, (str, int))
        )
    elif isinstance(value, torch.nn.Module):
        for part in ("_parameters", "_buffers", "_modules"):
            for key, item in value.__dict__.get(part, {}).items():
                yield f"{name}.{key}", item
        yield from _attributes(name, value)
    elif isinstance(value, torch.Tensor):
        if not is_plain(type(value)):
            yield from ((f"{name}.{part}", item) for part, item in parts_of(value))
    elif not isinstance(value, (type, ModuleType, str, bytes, int, float)):
        yield from _attributes(name, value)


def _attributes(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    for key, item in list(getattr(value, "__dict__", {}).items())[:_ITEMS_MAX]:
        if isinstance(key, str) and not key.startswith("__"):
            yield f"{name}.{key}", item
    for cls in type(value).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for key in (slots,) if isinstance(slots, str) else slots:
            member = cls.__dict__.get(key)
            if member is not None and hasattr(value, key):
                yield f"{name}.{key}", getattr(value, key)
