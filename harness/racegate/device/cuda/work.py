"""Work for a stream of CudaDevice: what it touches, how it is put there, and which owners its
values carry.

The values are made by the device; their owners are tags in the host's books, moved when the books
let the operation happen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from racegate.device.cuda.driver import CudaDriver, bits_of
from racegate.device.launches import Launch, Launcher
from racegate.device.masks import mask_of, prefix_mask
from racegate.device.memory import VirtualBuffer
from racegate.device.protocol import Use
from racegate.history.trace import Access
from racegate_kernels.backend import Backend
from racegate_kernels.poison import poison_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """put: on the stream given; settle: the owners, when it has happened."""

    accesses: tuple[Access, ...]
    put: Callable[[Any], None]
    settle: Callable[[], None]


def launch_work(launch: Launch, backend: Backend) -> Callable[[], None]:
    """Launches a kernel on the views that it declared, as they are now."""
    views = [
        use.buffer.storage.tensor if use.rows is None else use.buffer.storage.part(use.rows)
        for use in launch.uses
    ]
    return partial(launch.kernel, backend, *views, *launch.constants, **launch.scalars)


def on_zeros(launch: Launch, backend: Backend) -> Callable[[], None]:
    """The same kernel on zeros of the same shapes: whatever stands in the views may be poison, and
    row starts of poison make loops without end.
    """

    def work() -> None:
        views = [_zeros_like(use) for use in launch.uses]
        launch.kernel(backend, *views, *launch.constants, **launch.scalars)

    return work


def _zeros_like(use: Use) -> Any:
    tensor = use.buffer.storage.tensor
    rows = tensor.shape[0] if use.rows is None else use.rows
    return tensor.new_zeros((rows, *tensor.shape[1:]))


def pass_owners(
    launcher: Launcher, launches: Sequence[Launch], operation: str, step: int
) -> Callable[[], None]:
    """Checks and sets the owners that launches declare, and computes nothing."""
    tags = [
        msgspec.structs.replace(launch, kernel=_nothing, constants=[], scalars={})
        for launch in launches
        if any(use.expect or use.own for use in launch.uses)
    ]

    def settle() -> None:
        for launch in tags:
            launcher.run(launch, operation, step)

    return settle


def _nothing(*_: Any) -> None:
    """A kernel that leaves everything as it is."""


def copy_range(
    cuda: CudaDriver, target: VirtualBuffer, source: VirtualBuffer, first: int, end: int
) -> Work:
    """Rows first .. end - 1, with their owners."""
    mask = prefix_mask(end) ^ prefix_mask(first)
    to, origin = _live(target, source)

    def put(stream: Any) -> None:
        cuda.copy(stream, to.part(end, first=first), origin.part(end, first=first))

    def settle() -> None:
        to.owners[first:end] = origin.owners[first:end]

    accesses = (source.access(mask, is_write=False), target.access(mask, is_write=True))
    return Work(accesses=accesses, put=put, settle=settle)


def scatter_blocks(
    cuda: CudaDriver, target: VirtualBuffer, source: VirtualBuffer, blocks: Sequence[int]
) -> Work:
    """Row i of the source to block blocks[i] of a pool. Blocks have no owners."""
    to, origin = _live(target, source)

    def put(stream: Any) -> None:
        for row, block in enumerate(blocks):
            cuda.copy(stream, to.memory[block], origin.memory[row])

    read = source.access(prefix_mask(len(blocks)), is_write=False)
    accesses = (read, target.access(mask_of(blocks), is_write=True))
    return Work(accesses=accesses, put=put, settle=_nothing)


def gather_blocks(
    cuda: CudaDriver, target: VirtualBuffer, source: VirtualBuffer, blocks: Sequence[int]
) -> Work:
    """Block blocks[i] of a pool to row i of the target."""
    to, origin = _live(target, source)

    def put(stream: Any) -> None:
        for row, block in enumerate(blocks):
            cuda.copy(stream, to.memory[row], origin.memory[block])

    read = source.access(mask_of(blocks), is_write=False)
    accesses = (read, target.access(prefix_mask(len(blocks)), is_write=True))
    return Work(accesses=accesses, put=put, settle=_nothing)


def poison_work(cuda: CudaDriver, buffer: VirtualBuffer) -> Work:
    """The whole buffer becomes poison that nobody owns."""
    storage: Any = buffer.storage
    word = bits_of(poison_of(buffer.dtype), buffer.dtype)

    def settle() -> None:
        storage.owners[:] = [None] * len(storage.owners)

    whole = buffer.access(prefix_mask(buffer.shape[0]), is_write=True)
    put = partial(cuda.fill, target=storage.tensor, word=word)
    return Work(accesses=(whole,), put=put, settle=settle)


def _live(target: VirtualBuffer, source: VirtualBuffer) -> tuple[Any, Any]:
    assert not target.is_free, f"a copy from {source.name} to {target.name}, which is free"
    assert not source.is_free, f"a copy to {target.name} from {source.name}, which is free"
    return target.storage, source.storage
