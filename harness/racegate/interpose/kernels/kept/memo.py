"""Launches of interpreted kernels that are made again with the same bytes: what they wrote, without
running them.

A kernel is a function of its arguments and of the bytes it loads before it stores there. A launch
that finds all of those as they were before writes what it wrote before; anything else runs.
"""

from __future__ import annotations

import ctypes
import hashlib
import sys
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias

import msgspec

from racegate.interpose.device.spans import DEVICE_BASE, DEVICE_END
from racegate.interpose.kernels.kept.calls import Call, Place, Places, call_of
from racegate.interpose.kernels.kept.digests import digest_of
from racegate.interpose.kernels.kept.effects import (
    KnownLaunches,
    LaunchEffect,
    LinesRun,
    small,
    with_known,
)
from racegate.order.ranges import Ranges

_BYTES_MAX = 1 << 22  # of one launch
_BYTES_KEPT_MAX = 1 << 28  # of all that are kept, compressed


class LineNotes(Protocol):
    """Notes the lines of sources that run."""

    def set_apart(self) -> None:
        """What runs from now on is a launch."""
        ...

    def rejoin(self) -> LinesRun:
        """The lines of that launch, which count as all others do from now on."""
        ...

    def add(self, lines: LinesRun) -> None:
        """Those of a launch that ran them before."""
        ...


_Effects: TypeAlias = dict[str, list[LaunchEffect]]


class _Contents:
    """What stands in memory while a launch is looked for: each place is read once."""

    def __init__(self, call: Call, reaches: Callable[[int, int], bool]) -> None:
        self._call = call
        self._reaches = reaches
        self._read: dict[Place, bytes | None] = {}

    def found(self, places: Places) -> bytes | None:
        """A digest; None where something is no memory."""
        read = self._read
        for place in places:
            if place not in read:
                is_there = _is_there((place,), self._reaches)
                read[place] = self._call.contents((place,)) if is_there else None
        contents = [read[place] for place in places]
        return None if None in contents else _found(b"".join(filter(None, contents)))


class Memo:
    """Effects of launches by call. is_open: new ones are kept; hits: launches that did not run

    An effect is vouched for when its launch was judged in a recorded run and nothing was found in
    it: recorded runs, and other processes of the same packages, take no other.
    """

    def __init__(self) -> None:
        self.is_open = False
        self.hits = 0
        self._effects: dict[str, KnownLaunches] = {}
        self._bytes = 0
        self._new: dict[str, list[LaunchEffect]] = {}
        self._undo: list[tuple[int, bytes]] | None = None
        self._digests: dict[Any, str] = {}
        self._lines: LineNotes | None = None

    def keep(self, lines: LineNotes | None = None) -> None:
        """What runs from now on is kept. lines: notes them, also for launches that do not run"""
        self.is_open = True
        self._lines = lines

    def close(self) -> None:
        """Nothing new is kept from now on, and no lines are noted."""
        self.is_open = False
        self._lines = None

    def edited(self) -> None:
        """Some kernels are others now: nothing is known of those whose digest has changed, also of
        launches that a graph has captured before, nor of kernels that have none.
        """
        before, self._digests = self._digests, {}
        gone = {"", *(known for kernel, known in before.items() if known != self.digest(kernel))}
        self._effects = {
            text: effects for text, effects in self._effects.items() if _digest_in(text) not in gone
        }

    def call(self, executor: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call | None:
        """By which a launch is known here; None if it cannot be."""
        return call_of(executor, args, kwargs, self.digest(executor.fn))

    def digest(self, kernel: Callable[..., Any]) -> str:
        """As `digest_of` says, once for each kernel."""
        if kernel not in self._digests:
            self._digests[kernel] = digest_of(kernel)
        return self._digests[kernel]

    def find(
        self,
        call: Call,
        unwritten: Ranges = (),
        *,
        reaches: Callable[[int, int], bool],
        is_recording: bool = False,
    ) -> tuple[Ranges, Ranges] | None:
        """The footprint of a launch whose bytes are those of now; what it writes is written.

        unwritten: memory that nothing has written; a launch that loads of it is to be judged anew
        reaches: whether the device has the bytes [low, high): addresses that a kernel was given in
            a tensor may be no memory by now
        """
        known = self._effects.get(call.text, KnownLaunches())
        for effect in known.at(_Contents(call, reaches).found):
            if is_recording and not effect.is_vouched:
                continue
            if self._lines is not None and effect.lines is None:
                continue
            if not _is_there((*effect.reads, *effect.writes), reaches):
                continue
            reads = call.ranges(effect.reads)
            if unwritten and any(low < end and start < high for low, high in reads
                                 for start, end in unwritten):  # fmt: skip
                continue
            _write(call, effect)
            self.hits += 1
            if self._lines is not None and effect.lines is not None:
                self._lines.add(effect.lines)
            return reads, call.ranges(effect.writes)
        return None

    def note_store(self, ranges: Callable[[], Ranges]) -> None:
        """Before a store: what stands there, if a launch is being kept."""
        if self._undo is not None:
            self._undo.extend((low, ctypes.string_at(low, high - low)) for low, high in ranges())

    def begin(self) -> None:
        """A launch that may be kept begins."""
        self._undo = [] if self.is_open else None
        if self._lines is not None:
            self._lines.set_apart()

    def end(self, call: Call, reads: Ranges, inputs: Ranges, writes: Ranges) -> LaunchEffect | None:
        """It has ended; returns what is kept of it, if anything is. inputs: what it loaded,
        atomically or not
        """
        undo, self._undo = self._undo, None
        lines = None if self._lines is None else self._lines.rejoin()
        if undo is None or _size(inputs) + _size(writes) > _BYTES_MAX:
            return None
        loaded, written = call.places(inputs), call.places(writes)
        effect = LaunchEffect(
            inputs=loaded,
            first=_found(_before(call, small(loaded), undo)),
            found=_found(_before(call, loaded, undo)),
            reads=call.places(reads),
            writes=written,
            written=zlib.compress(call.contents(written), 1),
            lines=lines,
        )
        self._keep(call.text, effect)
        return effect

    def vouch(self, call: Call, effect: LaunchEffect) -> None:
        """The launch of this effect was judged, and nothing was found in it."""
        self._keep(call.text, msgspec.structs.replace(effect, is_vouched=True))

    def dump(self) -> bytes:
        """What is new since `load`, for the process that this one was forked from."""
        return msgspec.msgpack.encode(self._new)

    def load(self, data: bytes) -> None:
        """Adds what another process has kept; the kernels are made ready to run."""
        for text, effects in msgspec.msgpack.decode(data, type=_Effects).items():
            for effect in effects:
                self._add(text, effect)
            _make_ready(text)

    def new_for_others(self, data: bytes) -> dict[str, list[LaunchEffect]]:
        """What is new here of what another process of the same sources has dumped, and what other
        processes of the same packages may take over: what is vouched for, of kernels that a digest
        tells apart, and by no address of that process alone; without lines, which may stand
        elsewhere in the sources of others.
        """
        dumped = msgspec.msgpack.decode(data, type=_Effects).items()
        new = {
            text: [
                msgspec.structs.replace(effect, lines=None)
                for effect in effects
                if effect.is_vouched and _is_anywhere(effect) and not self._has(text, effect)
            ]
            for text, effects in dumped
            if _digest_in(text)
        }
        return {text: effects for text, effects in new.items() if effects}

    def _has(self, text: str, effect: LaunchEffect) -> bool:
        """Whether that launch is known here, and vouched for."""
        known = self._effects.get(text, KnownLaunches()).same(effect)
        return known is not None and known.is_vouched

    def _keep(self, text: str, effect: LaunchEffect) -> None:
        if self._add(text, effect):
            self._new.setdefault(text, []).append(effect)

    def _add(self, text: str, effect: LaunchEffect) -> bool:
        """Whether it is kept: so many bytes are of all."""
        launches = self._effects.setdefault(text, KnownLaunches())
        size = len(effect.found) + len(effect.written)
        if (known := launches.same(effect)) is not None:
            return launches.add(with_known(effect, known))
        if self._bytes + size > _BYTES_KEPT_MAX or not launches.add(effect):
            return False
        self._bytes += size
        return True


def _found(contents: bytes) -> bytes:
    return hashlib.blake2b(contents, digest_size=16).digest()


def _write(call: Call, effect: LaunchEffect) -> None:
    """What the launch writes."""
    contents, start = zlib.decompress(effect.written), 0
    for region, offset, size in effect.writes:
        ctypes.memmove(call.address(region, offset), contents[start : start + size], size)
        start += size


def _is_there(places: Places, reaches: Callable[[int, int], bool]) -> bool:
    """Whether all that lies in the memory of no tensor of the launch is memory."""
    return all(region >= 0 or reaches(low, low + size) for region, low, size in places)


def _digest_in(text: str) -> str:
    """Of the kernel, as a part of what a call is known by; empty if it has none."""
    return text.split("|")[1]


def _is_anywhere(effect: LaunchEffect) -> bool:
    """Whether all that it touched was memory of the launch's tensors, or is found at the same
    addresses elsewhere.
    """
    return all(
        region >= 0 or DEVICE_BASE <= low < DEVICE_END
        for region, low, _ in (*effect.inputs, *effect.reads, *effect.writes)
    )


def _make_ready(text: str) -> None:
    module, _, name = text.partition("|")[0].partition(":")
    rewrite = getattr(getattr(sys.modules.get(module), name, None), "rewrite", None)
    if rewrite is not None:
        rewrite()


def _size(ranges: Ranges) -> int:
    return sum(high - low for low, high in ranges)


def _before(call: Call, places: Places, undo: list[tuple[int, bytes]]) -> bytes:
    """The contents before the stores, whose old contents undo has in their order."""
    found = bytearray()
    for region, offset, size in places:
        low = call.address(region, offset)
        contents = bytearray(ctypes.string_at(low, size))
        for start, old in reversed(undo):
            first, last = max(low, start), min(low + size, start + len(old))
            if first < last:
                contents[first - low : last - low] = old[first - start : last - start]
        found += contents
    return bytes(found)
