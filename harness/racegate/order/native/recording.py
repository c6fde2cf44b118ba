"""The compiled part of the recorder: clocks, shadow, stack walk, operators."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple, cast

from racegate.order.native.compiler import compiled

HERE = Path(__file__).parent
LIBRARY = "libracegate_recording.so"

Ranges = tuple[tuple[int, int], ...]
Stack = tuple[tuple[str, int, str], ...]
RawAccess = tuple[int, int, int, str, Stack]  # index, lane, number, label, stack
# The earlier access, whether it writes, first byte, one past the last, whether the present one does
RawRace = tuple[RawAccess, bool, int, int, bool]

Raced = tuple[RawAccess, tuple[RawRace, ...]]  # an access and its races


class Order(NamedTuple):
    """The functions of one recorder, as native/order.c has them."""

    add_lane: Callable[[bool, bool, bool], int]
    last_number: Callable[[int], int]
    next_number: Callable[[int], int]
    clock_of: Callable[[int], list[int]]
    learn: Callable[[int, list[int]], None]
    put: Callable[[int, int], int]
    events: Callable[[], int]
    count_event: Callable[[], int]
    record: Callable[[int, int], list[int]]
    stream_clock: Callable[[int], list[int]]
    issue: Callable[[int, int, str, Stack, Ranges, Ranges], Raced | None]
    host: Callable[[int, str, Stack, Ranges, Ranges], Raced | None]
    latest: Callable[[], RawAccess]
    is_watched: Callable[[], bool]
    add_memory: Callable[[int, int, bool], None]
    remove_memory: Callable[[int], None]
    is_memory: Callable[[int], bool]
    count_cells: Callable[[], int]


def new_order() -> Order:
    """Clocks without lanes and a shadow of no memory."""
    return Order(*_library().racegate_order())


def new_walk(learn: Callable[[CodeType], int]) -> Callable[[FrameType | None], Stack]:
    """What walks from a frame (None: the caller's) outwards. learn: the kind of a code object."""
    return cast("Callable[[FrameType | None], Stack]", _library().racegate_frames(learn))


def union(pairs: list[tuple[int, int]]) -> Ranges:
    """The union of any ranges: sorted, overlapping and touching ones joined, empty ones dropped."""
    return _union()(pairs)


class Operators(NamedTuple):
    """What native/operators.c is given, in its order.

    tensor_types: of tensors that hold bytes themselves; plain_types: of arguments that are passed
        on as they are; item_sizes: by dtype, of those whose values are their bytes
    aliases: those that are known, by what `find_alias` knows them by; empty: makes a tensor on the
        device of a size, strides and dtype
    make: a tensor on the device with the values of one on the host, and its bytes
    """

    tensor_types: tuple[type, ...]
    plain_types: tuple[type, ...]
    item_sizes: dict[object, int]
    aliases: dict[object, object]
    find_alias: Callable[[object], object]
    empty: Callable[..., object]
    make: Callable[[object], tuple[object, Ranges]]


# The result, bytes read, bytes written, and of these those of new tensors
Ran = tuple[object, Ranges, Ranges, Ranges]


def new_run(operators: Operators) -> Callable[..., Ran | None]:
    """What runs the operators that native/operators.c can, called with (plan, arguments, named
    ones, bytes of those that are touched in part by position, whether bytes are to be told).
    """
    return cast("Callable[..., Ran | None]", _library().racegate_operators(operators))


def new_are_elsewhere(
    tensor_types: tuple[type, ...], plain_types: tuple[type, ...], cpu: object
) -> Callable[..., bool]:
    """What says whether no argument of (positional, named) ones is on the device, has its address
    in [low, high) or asks for pinned memory: of a tensor of other types it does not say so.
    """
    context = (tensor_types, plain_types, cpu)
    return cast("Callable[..., bool]", _library().racegate_elsewhere(context))


def build_recording() -> Path:
    """Path of the library, compiled now if it never was. Raises BadInput."""
    sources = sorted(HERE.glob("*.c"))
    return compiled(LIBRARY, sources, read=(*sources, *HERE.glob("*.h")))


@cache
def _union() -> Callable[[list[tuple[int, int]]], Ranges]:
    return cast("Callable[[list[tuple[int, int]]], Ranges]", _library().racegate_union())


@cache
def _library() -> ctypes.PyDLL:
    library = ctypes.PyDLL(str(build_recording()))
    library.racegate_order.restype = ctypes.py_object
    library.racegate_frames.restype = ctypes.py_object
    library.racegate_union.restype = ctypes.py_object
    library.racegate_operators.restype = ctypes.py_object
    library.racegate_operators.argtypes = [ctypes.py_object]
    library.racegate_elsewhere.restype = ctypes.py_object
    library.racegate_elsewhere.argtypes = [ctypes.py_object]
    library.racegate_frames.argtypes = [ctypes.py_object]
    return library
