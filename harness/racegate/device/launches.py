"""Launches as data, and how the virtual device runs one: plainly, audited, or by memo.

A captured launch is a launch whose footprint may name row masks; `resolved` gives it the rows that
a replay knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
import numpy as np

from racegate.device.audit import run_audited
from racegate.device.masks import prefix_mask
from racegate.device.memo import OpMemo
from racegate.device.protocol import Use
from racegate.device.recorder import Recorder
from racegate.history.trace import Access
from racegate_kernels.backend import Backend


class Launch(msgspec.Struct, frozen=True):
    """One kernel with its arguments. constants: arrays that are never written."""

    kernel: Callable[..., None]
    name: str
    uses: Sequence[Use]
    constants: list[np.ndarray]
    scalars: dict[str, Any]


class VirtualGraph:
    """Launches recorded in order, to be issued together as often as wanted. lane: where they were
    captured.
    """

    __slots__ = ("lane", "launches", "name")

    def __init__(self, name: str, lane: str) -> None:
        self.name = name
        self.lane = lane
        self.launches: list[Launch] = []

    def add(self, lane: str, launch: Launch) -> None:
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
    if isinstance(use.mask, str):
        return msgspec.structs.replace(use, mask=masks[use.mask])
    return use


def accesses_of(launch: Launch) -> list[Access]:
    """What a launch touches, use by use."""
    accesses = []
    for use in launch.uses:
        assert not use.buffer.is_free, f"{launch.name} uses {use.buffer.name} after it was freed"
        mask = use.mask
        if mask is None:
            mask = prefix_mask(use.buffer.shape[0] if use.rows is None else use.rows)
        elif isinstance(mask, str):
            raise AssertionError(f"no rows were given for {mask} of {use.buffer.name}")
        if use.is_read:
            accesses.append(use.buffer.access(mask, is_write=False))
        if use.is_write:
            accesses.append(use.buffer.access(mask, is_write=True))
    return accesses


def union_of(accesses: Iterable[Access]) -> tuple[Access, ...]:
    """One access per memory and kind of use."""
    found: dict[tuple[int, bool], Access] = {}
    for access in accesses:
        key = (access.storage, access.is_write)
        known = found.get(key, access)
        found[key] = msgspec.structs.replace(known, rows=known.rows | access.rows)
    return tuple(found.values())


class Launcher:
    """Runs launches when their turn has come. is_audited, memo: see VirtualDevice."""

    __slots__ = ("_is_audited", "_recorder", "backend", "memo")

    def __init__(
        self, recorder: Recorder, backend: Backend, *, is_audited: bool, memo: OpMemo | None
    ) -> None:
        self._recorder = recorder
        self.backend = backend
        self._is_audited = is_audited
        self.memo = memo

    def run(self, launch: Launch, operation: str, step: int) -> None:
        """Reads, computes and writes. operation: the name in the trace."""
        kernel, uses, scalars = launch.kernel, launch.uses, launch.scalars
        views = []
        for use in uses:
            storage = use.buffer.storage
            views.append(storage.array if use.rows is None else storage.array[: use.rows])
            for row, owner in use.expect:
                actual = storage.owners[row]
                if actual != owner:
                    self._recorder.misowned(operation, step, use.buffer.name, row, owner, actual)
        if self._is_audited:
            run_audited(kernel, self.backend, operation, uses, views, launch.constants, scalars)
        elif self.memo is None:
            kernel(self.backend, *views, *launch.constants, **scalars)
        else:
            compute = partial(kernel, self.backend, *views, *launch.constants, **scalars)
            self.memo.run(kernel, launch.name, uses, views, scalars, compute)
        for use in uses:
            if use.own:
                use.buffer.storage.owners[: len(use.own)] = use.own
