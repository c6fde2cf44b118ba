"""What the programs of a launch load and store under Triton's interpreter, access by access."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import Flag, StrEnum, auto
from functools import cache
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from racegate.history.finding import Frame, Stack
from racegate.interpose.device.frames import is_compiled_file, is_program_file
from racegate.order.ranges import Ranges, merged

Noted = tuple[Any, int, bool]  # addresses, bytes of each, whether they are written


class AtomicEffect(Flag):
    """What an atomic operation hands over. NOTHING: of a plain access, and of a relaxed one

    MAYBE: of a volatile load, which is no acquire, and behind which a fence would make it one
    """

    NOTHING = 0
    ACQUIRES = auto()
    RELEASES = auto()
    MAYBE = auto()


class ProgramAccess(NamedTuple):
    """What one program does at one place of a kernel.

    addresses: [N] uint64, of the elements; size: of each, in bytes
    program: its number in the grid; at: of the touch, among all of the launch
    values: [N], what a plain store writes, None of all else; place: the line of the kernel
    is_atomic: towards other programs: of atomic operations whose scope is no more than the program
        it is false
    lanes: [N], the place of each element in the tensor, None: all of it; shape: of the tensor
    barriers, syncs: how many barriers of the program, and how many operations that may bring one
        when compiled or are one, the launch has come to
    """

    addresses: NDArray[np.uint64]
    size: int
    program: int
    at: int
    place: Frame
    is_write: bool = False
    is_atomic: bool = False
    values: NDArray[np.generic] | None = None
    handing: AtomicEffect = AtomicEffect.NOTHING
    lanes: NDArray[np.int64] | None = None
    shape: tuple[int, ...] = ()
    barriers: int = 0
    syncs: int = 0

    @property
    def elements(self) -> int:
        """Of the tensor, masked or not."""
        return int(np.prod(self.shape, dtype=np.int64))


class MissingEdge(StrEnum):
    """What would order two accesses of one launch, in words."""

    PROGRAMS = (
        "nothing orders two programs of one launch: give each bytes of its own, make both accesses "
        "atomic, hand over by atomic operations that release and acquire, or put what comes second "
        "into a launch of its own"
    )
    RELEASE = (
        "an atomic operation releases what its own thread did, and other threads of the program "
        "may not have come so far: put tl.debug_barrier() between the first access and the atomic "
        "operation behind it"
    )
    BARRIER = (
        "threads of different warps touch these bytes, and nothing orders them: put "
        "tl.debug_barrier() between the two"
    )
    WAIT = (
        "the second launch begins early, when the first has triggered, and does this before it "
        "waits: put gdc_wait() before the access, trigger behind the other one, or leave "
        "launch_pdl out"
    )
    WAIT_BETWEEN = (
        "the second launch waits for the one before it alone, and that one ends without having "
        "waited for the first: put gdc_wait() into the launch between, or leave launch_pdl out"
    )
    OUTSIDE = (
        "it lies in no storage of a tensor that the launch was given: mask what is beyond the end, "
        "or give the kernel the tensor that it means"
    )
    UNWRITTEN = (
        "nothing has written it since it was allocated, and what the kernel stores depends on it: "
        "fill it before the launch, or mask the load"
    )
    ONE_LANE = (
        "two lanes of one store write different values to one element, and either may stay: store "
        "each element once"
    )


class EarlierLaunch(NamedTuple):
    """A launch before another one that begins early. stack: where the program makes it"""

    kernel: str
    stack: Stack


class LaunchRace(NamedTuple):
    """Two accesses in a launch that nothing orders: the first such ones from low to high. lack:
    what would order them; before: the launch of the first access, where it is another one
    """

    first: ProgramAccess
    second: ProgramAccess
    low: int
    high: int
    lack: MissingEdge
    before: EarlierLaunch | None = None


class LaunchJudged(NamedTuple):
    """What came of one launch.

    kernel: its name; place: where its function stands; programs: of the grid
    races: accesses that nothing orders; untold: pairs of lines whose order cannot be told
    """

    kernel: str
    place: Frame
    programs: int
    races: tuple[LaunchRace, ...]
    untold: int


def noted_addresses(pointers: Any, mask: Any, *, is_write: bool) -> Noted:
    """(addresses, bytes of each, is_write) of an access. pointers, mask: of the interpreter."""
    addresses = np.asarray(pointers.data)
    if mask is not None:
        chosen = np.asarray(mask.data, dtype=bool)  # `&` of the interpreter may give integers
        shape = np.broadcast_shapes(addresses.shape, chosen.shape)
        addresses = np.broadcast_to(addresses, shape)[np.broadcast_to(chosen, shape)]
    size = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
    return np.array(addresses, dtype=np.uint64).reshape(-1), size, is_write


class BuilderCall(NamedTuple):
    """A method of the interpreter's builder that touches memory: where its arguments stand."""

    name: str
    pointer: int
    mask: int | None
    is_write: bool
    value: int | None = None
    volatile: int | None = None
    semantics: int | None = None


_HANDING = {
    "ACQUIRE": AtomicEffect.ACQUIRES,
    "RELEASE": AtomicEffect.RELEASES,
    "ACQUIRE_RELEASE": AtomicEffect.ACQUIRES | AtomicEffect.RELEASES,
}


def touch_of(
    builder: Any,
    method: BuilderCall,
    noted: Noted,
    args: Sequence[Any],
    *,
    at: int,
    barriers: int,
    syncs: int,
) -> ProgramAccess:
    """What a program does by a method of the builder. args: of it; at, barriers, syncs: how many
    before it
    """
    addresses, size, is_write = noted
    shape, chosen = _lanes(method, args)
    is_atomic, handing = _atomicity(method, args)
    return ProgramAccess(
        addresses=addresses,
        size=size,
        program=number_of(builder),
        at=at,
        place=_place(),
        is_write=is_write,
        is_atomic=is_atomic,
        values=None if method.value is None else _values(args[method.value], shape, chosen),
        handing=handing,
        lanes=None if chosen is None else np.flatnonzero(chosen),
        shape=shape,
        barriers=barriers,
        syncs=syncs,
    )


def number_of(builder: Any) -> int:
    """Of the program that is being interpreted, in its grid."""
    (x, y, z), (width, height, _) = builder.grid_idx, builder.grid_dim
    return int(x + width * (y + height * z))


def _lanes(method: BuilderCall, args: Sequence[Any]) -> tuple[tuple[int, ...], Any]:
    """The tensor's shape, and which of its elements are touched; None: all."""
    shape = np.shape(args[method.pointer].data)
    if method.mask is None:
        return shape, None
    mask = np.asarray(args[method.mask].data, dtype=bool)
    shape = np.broadcast_shapes(shape, mask.shape)
    return shape, None if mask.all() else np.broadcast_to(mask, shape)


def _values(value: Any, shape: tuple[int, ...], chosen: Any) -> NDArray[np.generic]:
    values = np.broadcast_to(np.asarray(value.data), shape)
    return (values if chosen is None else values[chosen]).reshape(-1)


def _atomicity(method: BuilderCall, args: Sequence[Any]) -> tuple[bool, AtomicEffect]:
    """Whether other programs see it as one operation, and what it hands over to them."""
    if method.semantics is None:
        is_volatile = method.volatile is not None and bool(args[method.volatile])
        return is_volatile, AtomicEffect.MAYBE if is_volatile else AtomicEffect.NOTHING
    if args[method.semantics + 1].name == "CTA":
        return False, AtomicEffect.NOTHING
    return True, _HANDING.get(args[method.semantics].name, AtomicEffect.NOTHING)


def _place() -> Frame:
    """The line of the kernel, or of a function that it calls, that is being interpreted."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and not _is_of_kernel(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return ("", 0, "")
    return frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_qualname


@cache
def _is_of_kernel(file: str) -> bool:
    return is_program_file(file) or is_compiled_file(file)


def ranges_of(noted: Sequence[Noted], *, is_write: bool) -> Ranges:
    """The bytes of the noted accesses of one kind. noted: (addresses, bytes of each, is_write)."""
    pairs: list[tuple[int, int]] = []
    for addresses, size, writes in noted:
        if writes is not is_write or not addresses.size:
            continue
        starts = np.unique(addresses).astype(np.int64)
        breaks = np.flatnonzero(np.diff(starts) > size)
        firsts = starts[np.concatenate(([0], breaks + 1))]
        lasts = starts[np.concatenate((breaks, [starts.size - 1]))] + size
        pairs.extend(zip(firsts.tolist(), lasts.tolist(), strict=True))
    return merged(pairs)
