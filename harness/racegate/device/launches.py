"""Launches as data: what a kernel is given, what it touches, and whose values it handles.

A captured launch is a launch whose footprint may name row masks; `resolved` gives it the rows that
a replay knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from racegate.device.masks import prefix_mask
from racegate.device.recorder import Recorder
from racegate.device.uses import Use
from racegate.history.trace import Access, rows_of
from racegate_kernels.numerics import Array

Kernel = Callable[..., None]


class Launch(msgspec.Struct, frozen=True):
    """One kernel with its arguments. constants: arrays that are never written; scalars: plain
    values, by the names of parameters.
    """

    kernel: Kernel
    name: str
    uses: Sequence[Use]
    constants: list[Array]
    scalars: dict[str, object]


class Graph:
    """Launches recorded in order, to be issued together as often as wanted. Buffers, views,
    constants and scalars are as they were at the capture; what stands in the buffers is read at
    each replay.

    lane: where they were captured; handle: the driver's, once the capture has ended
    """

    __slots__ = ("handle", "lane", "launches", "name")

    def __init__(self, name: str, lane: str) -> None:
        self.name = name
        self.lane = lane
        self.launches: list[Launch] = []
        self.handle: object = None

    def add(self, lane: str, launch: Launch) -> None:
        """One more launch, on the lane of the capture and without owners."""
        assert lane == self.lane, f"{launch.name} on {lane} while {self.lane} is captured"
        for use in launch.uses:
            assert not use.expect and not use.own, f"{launch.name}: a graph knows no step's owners"
        self.launches.append(launch)

    def resolved(self, masks: Mapping[str, int]) -> list[Launch]:
        """The launches with the rows that their named masks stand for."""
        resolved = []
        for launch in self.launches:
            uses = tuple(_resolved(use, masks) for use in launch.uses)
            resolved.append(msgspec.structs.replace(launch, uses=uses))
        return resolved


def _resolved(use: Use, masks: Mapping[str, int]) -> Use:
    if not isinstance(use.mask, str):
        return use
    written = masks[use.written] if isinstance(use.written, str) else use.written
    return msgspec.structs.replace(use, mask=masks[use.mask], written=written)


def accesses_of(launch: Launch) -> list[Access]:
    """What a launch touches, use by use."""
    accesses = []
    for use in launch.uses:
        assert not use.buffer.is_free, f"{launch.name} uses {use.buffer.name} after it was freed"
        mask, written = use.known_mask, use.written_mask
        if mask is None:
            rows = len(use.buffer.storage.array) if use.rows is None else use.rows
            mask = written = prefix_mask(rows)
        if use.is_read:
            accesses.append(use.buffer.access(mask, is_write=False))
        if use.is_write:
            assert written is not None
            accesses.append(use.buffer.access(written, is_write=True))
    return accesses


def union_of(accesses: Iterable[Access]) -> tuple[Access, ...]:
    """One access per memory and kind of use."""
    found: dict[tuple[int, bool], Access] = {}
    for access in accesses:
        key = (access.storage, access.is_write)
        known = found.get(key, access)
        found[key] = msgspec.structs.replace(known, rows=known.rows | access.rows)
    return tuple(found.values())


def check_owners(use: Use, recorder: Recorder, operation: str, step: int) -> None:
    """Notes every row that carries another's value than the reader means to find."""
    owners = use.buffer.storage.owners
    for row, owner in use.expect:
        if owners[row] != owner:
            recorder.misowned(operation, step, use.buffer.name, row, owner, owners[row])


def set_owners(uses: Sequence[Use]) -> None:
    """What was written belongs to whom the uses say."""
    for use in uses:
        if not use.own:
            continue
        owners, mask = use.buffer.storage.owners, use.known_mask
        if mask is None:
            owners[: len(use.own)] = use.own
            continue
        for row, owner in zip(rows_of(mask), use.own, strict=True):
            owners[row] = owner
