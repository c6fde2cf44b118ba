"""Which variable or attribute of the program holds the bytes at an address."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import FrameType, ModuleType
from typing import Any

import numpy as np
import torch

from racegate.history.finding import place_name
from racegate.interpose.device.frames import is_compiled_file, is_program_file
from racegate.interpose.device.session import Session
from racegate.interpose.kernels.aliases import is_plain, parts_of

_DEPTH_MAX = 4
_LOOKED_AT_MAX = 4000
_ITEMS_MAX = 64


def buffer_name(session: Session, address: int) -> str:
    """The expression that holds the address now, else where its memory was asked for."""
    for frame in _frames(session, is_program_file):
        if found := _search(frame, address):
            return f"{found} ({frame.f_code.co_qualname})"
    for frame in _frames(session, is_compiled_file):
        if found := _search(frame, address):
            return f"{found} (of a compiled region)"
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


def _search(frame: FrameType, address: int) -> str:
    """Breadth first, so that the shortest expression wins."""
    scope = dict(frame.f_locals)
    queue: list[tuple[str, Any, int]] = [(name, value, 0) for name, value in scope.items()]
    if frame.f_globals is not frame.f_locals:
        queue += [(name, value, 0) for name, value in frame.f_globals.items()]
    seen: set[int] = set()
    for name, value, depth in queue:  # grows while it is read
        if id(value) in seen or len(seen) > _LOOKED_AT_MAX or name.startswith("__"):
            continue
        seen.add(id(value))
        # Objects of the program answer as they like: a dead weak reference raises at any question.
        with suppress(Exception):
            if _holds(value, address):
                return name
            if depth < _DEPTH_MAX:
                queue.extend((child, item, depth + 1) for child, item in _children(name, value))
    return ""


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
