"""What a launch of a kernel is given, by which it is known again."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, TypeAlias

import msgspec
import torch

from racegate.order.ranges import Ranges

_PLAIN = (int, float, bool, str, type(None))

# (region, offset, size): bytes by the argument's memory that they lie in (-1: in none, and the
# offset is an address) and their place there.
Place: TypeAlias = tuple[int, int, int]
Places: TypeAlias = tuple[Place, ...]


class Call(msgspec.Struct, frozen=True):
    """What a launch is given. text: all but the addresses; regions: the memory of its tensors, by
    which its bytes are found again where another run has them
    """

    text: str
    regions: Ranges

    def _place(self, low: int) -> tuple[int, int]:
        """(region, offset) of an address."""
        for index, (base, end) in enumerate(self.regions):
            if base <= low < end:
                return index, low - base
        return -1, low

    def _cut(self, ranges: Ranges) -> Ranges:
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

    def places(self, ranges: Ranges) -> Places:
        """Where they lie in the memory of the launch's tensors."""
        return tuple((*self._place(low), high - low) for low, high in self._cut(ranges))

    def ranges(self, places: Places) -> Ranges:
        """Their addresses here, in order."""
        found = ((self.address(region, offset), size) for region, offset, size in places)
        return tuple(sorted((low, low + size) for low, size in found))

    def contents(self, places: Places) -> bytes:
        """What stands there now."""
        return b"".join(ctypes.string_at(self.address(*place), size) for *place, size in places)


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
