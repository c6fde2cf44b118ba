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
from itertools import pairwise
from typing import Any, Protocol, TypeAlias

import msgspec
import torch

from racegate.interpose.device.spans import DEVICE_BASE, DEVICE_END
from racegate.interpose.kernels.interpreted.digests import digest_of
from racegate.order.ranges import Ranges

_CALLS_MAX = 4096  # different contents that are kept of one call: a loop makes it once a step
_BYTES_MAX = 1 << 22  # of one launch
_BYTES_KEPT_MAX = 1 << 28  # of all that are kept, compressed
_PLAIN = (int, float, bool, str, type(None))

LinesRun: TypeAlias = dict[str, tuple[int, ...]]  # by file


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


# (region, offset, size): bytes by the argument's memory that they lie in (-1: in none, and the
# offset is an address) and their place there.
_Places: TypeAlias = tuple[tuple[int, int, int], ...]


class LaunchEffect(msgspec.Struct, frozen=True, array_like=True):
    """One launch. inputs: what it loaded, atomically or not; found: a digest of what stood there
    reads, writes: its footprint; written: what stands in the latter behind it, compressed: rows of
    logits are large, and mostly alike
    is_vouched: it was judged, and nothing was found in it
    lines: that it ran, None if nobody noted them
    """

    inputs: _Places
    found: bytes
    reads: _Places
    writes: _Places
    written: bytes
    is_vouched: bool = False
    lines: LinesRun | None = None


_Effects: TypeAlias = dict[str, list[LaunchEffect]]


class Call(msgspec.Struct, frozen=True):
    """What a launch is given. text: all but the addresses; regions: the memory of its tensors, by
    which its bytes are found again where another run has them
    """

    text: str
    regions: Ranges

    def place(self, low: int) -> tuple[int, int]:
        """(region, offset) of an address."""
        for index, (base, end) in enumerate(self.regions):
            if base <= low < end:
                return index, low - base
        return -1, low

    def cut(self, ranges: Ranges) -> Ranges:
        """Ranges, none of which goes on into the memory of another tensor: where two lie side by
        side here, they need not do so elsewhere.
        """
        borders = sorted({border for region in self.regions for border in region})
        cut: list[tuple[int, int]] = []
        for low, high in ranges:
            cut += pairwise((low, *(one for one in borders if low < one < high), high))
        return tuple(cut)

    def address(self, region: int, offset: int) -> int:
        return offset if region < 0 else self.regions[region][0] + offset


class Memo:
    """Effects of launches by call. is_open: new ones are kept; hits: launches that did not run

    An effect is vouched for when its launch was judged in a recorded run and nothing was found in
    it: recorded runs, and other processes of the same packages, take no other.
    """

    def __init__(self) -> None:
        self.is_open = False
        self.hits = 0
        self._effects: dict[str, dict[_Places, dict[bytes, LaunchEffect]]] = {}
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
        for places, by_contents in self._effects.get(call.text, {}).items():
            if not _is_there(places, reaches):
                continue
            effect = by_contents.get(_found(_contents(call, places)))
            if effect is None or (is_recording and not effect.is_vouched):
                continue
            if self._lines is not None and effect.lines is None:
                continue
            if not _is_there((*effect.reads, *effect.writes), reaches):
                continue
            reads = _ranges(call, effect.reads)
            if unwritten and any(low < end and start < high for low, high in reads
                                 for start, end in unwritten):  # fmt: skip
                continue
            _write(call, effect)
            self.hits += 1
            if self._lines is not None and effect.lines is not None:
                self._lines.add(effect.lines)
            return reads, _ranges(call, effect.writes)
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
        reads, inputs, writes = call.cut(reads), call.cut(inputs), call.cut(writes)
        written = _places(call, writes)
        effect = LaunchEffect(
            inputs=_places(call, inputs),
            found=_found(_before(inputs, undo)),
            reads=_places(call, reads),
            writes=written,
            written=zlib.compress(_contents(call, written), 1),
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
        by_contents = self._effects.get(text, {}).get(effect.inputs, {})
        return effect.found in by_contents and by_contents[effect.found].is_vouched

    def _keep(self, text: str, effect: LaunchEffect) -> None:
        if self._add(text, effect):
            self._new.setdefault(text, []).append(effect)

    def _add(self, text: str, effect: LaunchEffect) -> bool:
        """Whether it is kept: so many are of a call, and so many bytes of all."""
        kept = self._effects.setdefault(text, {}).setdefault(effect.inputs, {})
        if (known := kept.get(effect.found)) is None:
            size = len(effect.found) + len(effect.written)
            if len(kept) >= _CALLS_MAX or self._bytes + size > _BYTES_KEPT_MAX:
                return False
            self._bytes += size
        elif known.is_vouched or known.lines is not None:
            effect = _with(effect, known)
        kept[effect.found] = effect
        return True


def call_of(
    executor: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], digest: str = ""
) -> Call | None:
    """What a launch is given; None for arguments that text does not tell apart, and for tensors
    whose memory overlaps in part. digest: of the kernel
    """
    if not isinstance(executor.grid, (tuple, list)) or getattr(executor, "pre_run_hooks", None):
        return None
    values = (*args, *kwargs.values())
    regions = _regions(values)
    words = [_word(value, regions) for value in values]
    if "" in words or any(high > low for (_, high), (low, _) in pairwise(sorted(regions))):
        return None
    name = f"{executor.fn.__module__}:{executor.fn.__name__}"
    return Call("|".join((name, digest, repr(tuple(executor.grid)), *kwargs, *words)), regions)


def _regions(values: tuple[Any, ...]) -> Ranges:
    """The memory of tensors, in the order of their first view."""
    found: dict[tuple[int, int], None] = {}
    for value in values:
        if isinstance(value, torch.Tensor):
            storage = value.untyped_storage()
            low = storage.data_ptr()
            found[low, low + storage.nbytes()] = None
    return tuple(found)


def _word(value: Any, regions: Ranges) -> str:
    """Of a tensor a kernel gets its address and its type; how much memory there is says how far
    what was loaded before can be looked at.
    """
    if isinstance(value, torch.Tensor):
        storage = value.untyped_storage()
        low = storage.data_ptr()
        region = regions.index((low, low + storage.nbytes()))
        return f"{region}+{value.data_ptr() - low}/{storage.nbytes()}:{value.dtype}"
    return repr(value) if isinstance(value, _PLAIN) else ""


def _places(call: Call, ranges: Ranges) -> _Places:
    return tuple((*call.place(low), high - low) for low, high in ranges)


def _contents(call: Call, places: _Places) -> bytes:
    return b"".join(ctypes.string_at(call.address(*place), size) for *place, size in places)


def _found(contents: bytes) -> bytes:
    return hashlib.blake2b(contents, digest_size=16).digest()


def _write(call: Call, effect: LaunchEffect) -> None:
    """What the launch writes."""
    contents, start = zlib.decompress(effect.written), 0
    for region, offset, size in effect.writes:
        ctypes.memmove(call.address(region, offset), contents[start : start + size], size)
        start += size


def _is_there(places: _Places, reaches: Callable[[int, int], bool]) -> bool:
    """Whether all that lies in the memory of no tensor of the launch is memory."""
    return all(region >= 0 or reaches(low, low + size) for region, low, size in places)


def _with(effect: LaunchEffect, known: LaunchEffect) -> LaunchEffect:
    """A launch of the same bytes as a known one, with what is known of that too."""
    return msgspec.structs.replace(
        effect,
        is_vouched=effect.is_vouched or known.is_vouched,
        lines=known.lines if effect.lines is None else effect.lines,
    )


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


def _ranges(call: Call, places: _Places) -> Ranges:
    found = ((call.address(region, offset), size) for region, offset, size in places)
    return tuple(sorted((low, low + size) for low, size in found))


def _make_ready(text: str) -> None:
    module, _, name = text.partition("|")[0].partition(":")
    rewrite = getattr(getattr(sys.modules.get(module), name, None), "rewrite", None)
    if rewrite is not None:
        rewrite()


def _size(ranges: Ranges) -> int:
    return sum(high - low for low, high in ranges)


def _before(ranges: Ranges, undo: list[tuple[int, bytes]]) -> bytes:
    """The contents before the stores, whose old contents undo has in their order."""
    found = bytearray()
    for low, high in ranges:
        contents = bytearray(ctypes.string_at(low, high - low))
        for start, old in reversed(undo):
            first, last = max(low, start), min(high, start + len(old))
            if first < last:
                contents[first - low : last - low] = old[first - start : last - start]
        found += contents
    return bytes(found)
