"""Tensors that a forward pass is prepared with, and what pools and the radix cache hold: two
versions of a scheduler are compared by them, of runs in which nothing is held.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from racegate.targets.common.inside.fields import is_told, named, plain
from racegate.targets.common.inside.session import Tensor
from racegate.targets.common.inside.watch import Values, Watch
from racegate.targets.common.wire import KEPT

ITEMS_MAX = 4096  # of a tensor that says where something is, and not what it is
_FREE = ("free_slots", "free_pages", "release_pages")


def watch_tensors(watch: Watch, runner: Any) -> None:
    """What each pass is given beside its tokens, and what attention makes of it."""
    plain_forward = runner.forward

    def forward(batch: Any, *args: Any, **kwargs: Any) -> Any:
        note_tensors(watch, f"{KEPT} for kernels", tensors_of(batch))
        return plain_forward(batch, *args, **kwargs)

    runner.forward = forward
    backend = getattr(runner, "attn_backend", None)
    if backend is not None:
        _watch_metadata(watch, backend)


def _watch_metadata(watch: Watch, backend: Any) -> None:
    """Of attention, and of recurrent layers where there are some."""
    parts = {
        "attention": getattr(backend, "full_attn_backend", backend),
        "states": getattr(backend, "linear_attn_backend", None),
    }
    make = backend.init_forward_metadata

    def init_forward_metadata(batch: Any, *args: Any, **kwargs: Any) -> Any:
        made = make(batch, *args, **kwargs)
        for name, part in parts.items():
            metadata = getattr(part, "forward_metadata", None)
            if metadata is not None:
                note_tensors(watch, f"{KEPT} for {name}", tensors_of(metadata))
        return made

    backend.init_forward_metadata = init_forward_metadata


def tensors_of(owner: Any) -> dict[str, Tensor]:
    """Fields of an object that are places, numbers of tokens or flags."""
    return {name: value for name, value in named(owner) if is_told(name) and _is_place(value)}


def _is_place(value: Any) -> bool:
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return False
    return not value.is_floating_point() and 0 < value.numel() <= ITEMS_MAX


def note_tensors(watch: Watch, name: str, found: dict[str, Tensor]) -> None:
    """Those of the device as of this place on the current stream, the others as they are now."""
    on_host = {key: one for key, one in found.items() if not one.is_cuda}
    on_device = {key: one for key, one in found.items() if one.is_cuda}
    watch.inner_on_device(name, on_device, **watch.on_host_now(on_host))


def free_lists(pools: Mapping[str, Any]) -> Values:
    """What the host has of what is free, in the order in which it is handed out. pools: by name"""
    return {name: plain(value) for name, value in _free(pools) if isinstance(value, list)}


def note_free(watch: Watch, pools: Mapping[str, Any]) -> None:
    """What the device has of it, as of this place on the current stream."""
    tensors = {name: value for name, value in _free(pools) if isinstance(value, torch.Tensor)}
    if tensors:
        looks = dict.fromkeys(tensors, _in_order)
        watch.inner_look(f"{KEPT} of what is free", tensors, looks)


def _free(pools: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    for name, pool in pools.items():
        for field in _FREE:
            yield f"{name}.{field}", getattr(pool, field, None)


def _in_order(memory: Tensor) -> Tensor:
    """How many there are, their sum, and one that their order changes."""
    values = memory.flatten().to(torch.int64)
    ranks = torch.arange(1, memory.numel() + 1)
    return torch.stack((torch.tensor(memory.numel()), values.sum(), (values * ranks).sum()))


def kept_prefixes(nodes: Iterable[tuple[tuple[int, ...], Any]]) -> Values:
    """By prefix, what decides when its memory goes. nodes: of the radix cache, with their tokens"""
    known = list(nodes)
    used = [getattr(node, "last_access_time", None) for _, node in known]
    # A counter in newer releases; a clock may stand still between two.
    order = sorted(at for at in used if isinstance(at, int))
    found: Values = {}
    for (tokens, node), at in zip(known, used, strict=True):
        rank = order.index(at) if isinstance(at, int) else None
        found[f"{len(tokens)} {_checksum(tokens)}"] = _locks(node) | {"used": rank}
    return found


def _checksum(tokens: tuple[int, ...]) -> int:
    return zlib.crc32(repr(tokens).encode())


def _locks(node: Any) -> Values:
    """How often each kind of its memory is kept from going."""
    kinds = getattr(node, "component_types", ())
    owners = {f"{kind.name}.": node.component(kind) for kind in kinds} or {"": node}
    return {
        f"{name}{field}": value
        for name, owner in owners.items()
        for field, value in named(owner)
        if field.endswith("lock_ref") and isinstance(value, int)
    }
