"""The buffers of an engine by the names that its own objects give them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

DEPTH_MAX = 6
ITEMS_MAX = 16


def named_buffers(root: object, package: str) -> list[tuple[int, int, str]]:
    """(first byte, one past the last, name) of the pinned and device tensors under root.

    The shortest path wins; overlapping memory keeps its first name. package: see shared_tensors
    """
    found: dict[int, tuple[int, int, str]] = {}
    for path, tensor in shared_tensors(root, package):
        storage = tensor.untyped_storage()
        low = storage.data_ptr()
        if low not in found:
            found[low] = (low, low + storage.nbytes(), path)
    return list(found.values())


def shared_tensors(root: object, package: str) -> Iterator[tuple[str, Any]]:
    """(path, tensor) of the pinned and device tensors under root, the shortest path first.

    package: whose objects are looked into
    """
    for path, value in _arrays(root, package):
        if isinstance(value, torch.Tensor) and _is_shared(value):
            yield path, value


def host_tensors(root: object, package: str) -> Iterator[tuple[str, Any]]:
    """(path, tensor) of what the host alone reaches under root: plain tensors and arrays, each
    array as a tensor on its memory, and of memory that several have in common the first.

    package: see shared_tensors
    """
    seen: set[int] = set()
    for path, value in _arrays(root, package):
        is_array = isinstance(value, np.ndarray)
        if is_array and (value.dtype.kind not in "if" or not value.flags.writeable):
            continue
        tensor = torch.from_numpy(value) if is_array else value
        if tensor.layout is not torch.strided:
            continue
        place = tensor.data_ptr()
        if place not in seen and not _is_shared(tensor) and tensor.is_cpu and tensor.numel():
            yield path, tensor
        seen.add(place)


def _arrays(root: object, package: str) -> Iterator[tuple[str, Any]]:
    """(path, tensor or array) of all under root, the shortest path first."""
    queue: list[tuple[str, Any, int]] = [("", root, 0)]
    seen: set[int] = set()
    for path, value, depth in queue:  # grows while it is read
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, (torch.Tensor, np.ndarray)):
            yield path, value
        elif depth < DEPTH_MAX:
            queue.extend(
                (f"{path}.{key}" if path else key, item, depth + 1)
                for key, item in _parts(value, package)
            )


def _is_shared(tensor: Any) -> bool:
    if tensor.layout is not torch.strided or not tensor.numel():
        return False
    return bool(tensor.is_cuda or (tensor.is_cpu and tensor.is_pinned()))


def _parts(value: Any, package: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, (list, tuple)):
        yield from ((str(index), item) for index, item in enumerate(value[:ITEMS_MAX]))
    elif isinstance(value, dict):
        items = list(value.items())[:ITEMS_MAX]
        yield from ((key, item) for key, item in items if isinstance(key, str))
    elif isinstance(value, torch.nn.Module):
        return  # weights are not shared between steps
    elif type(value).__module__.startswith(package):
        for key, item in list(getattr(value, "__dict__", {}).items()):
            if isinstance(key, str):
                yield key, item
