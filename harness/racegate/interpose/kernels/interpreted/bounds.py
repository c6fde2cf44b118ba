"""Whether what a kernel touches lies in the memory that its launch was given.

A pointer of a kernel comes from an argument: what it reaches has to lie in the storage of a tensor
among the arguments, to the byte. The allocator's blocks are larger, and the next tensor is not far:
beyond the end of a storage a GPU does not fault, as a rule, and neither would the interpreter. A
kernel that makes pointers of numbers (a table of addresses) may touch all memory of the device.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from operator import itemgetter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from racegate.order.ranges import Ranges, merged

_PLAIN = (int, float, str, type(None), torch.dtype)


class OutsideError(RuntimeError):
    """A kernel touches an address where there is no memory: a GPU ends with an error of CUDA."""


def given_memory(values: Iterable[Any]) -> Ranges | None:
    """The storages of the tensors among a launch's arguments. None if there is something else among
    them that may hold a pointer.
    """
    found: list[tuple[int, int]] = []
    for value in values:
        if isinstance(value, (list, tuple)):
            inner = given_memory(value)
            if inner is None:
                return None
            found += inner
        elif isinstance(value, torch.Tensor):
            storage = value.untyped_storage()
            found.append((storage.data_ptr(), storage.data_ptr() + storage.nbytes()))
        elif isinstance(base := getattr(value, "base", None), torch.Tensor):  # a descriptor
            found += given_memory((base,)) or ()
        elif hasattr(value, "data_ptr") or not _is_number_or_function(value):
            return None
    return merged(found)


def _is_number_or_function(value: Any) -> bool:
    """Numbers, and what a kernel is compiled for: constants of Triton, functions, types."""
    return isinstance(value, _PLAIN) or callable(value) or type(value).__module__[:6] == "triton"


def outside(addresses: NDArray[np.uint64], size: int, memory: Ranges) -> NDArray[np.bool_] | None:
    """Which elements of an access do not lie in the memory whole; None if all do.

    addresses: [N], of the elements; size: of each, in bytes
    """
    if not addresses.size:
        return None
    low, high = int(addresses.min()), int(addresses.max()) + size
    at = bisect_right(memory, low, key=itemgetter(0)) - 1
    if at >= 0 and high <= memory[at][1]:
        return None
    starts, ends = np.array([(0, 0), *memory], np.uint64).T
    place = np.searchsorted(starts, addresses, side="right") - 1
    beyond: NDArray[np.bool_] = addresses + np.uint64(size) > ends[place]
    return beyond if beyond.any() else None
