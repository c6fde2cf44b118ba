"""Work for a stream of CudaDevice: what it touches, how it is put there, and which owners its
values carry.

The values are made by the device; their owners are tags in the host's pending queues, moved when
the pending queues let the operation happen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from racegate.device.cuda.driver import CudaDriver, Handle, Tensor, bits_of
from racegate.device.cuda.memory import storage_of
from racegate.device.launches import Launch, check_owners, set_owners
from racegate.device.masks import mask_of, prefix_mask
from racegate.device.memory import Buffer, require_live
from racegate.device.recorder import Recorder
from racegate.device.uses import Use
from racegate.history.trace import Access
from racegate_kernels.backend import Backend
from racegate_kernels.poison import poison_of


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamWork:
    """put: on the stream given; settle: the owners, when it has happened."""

    accesses: tuple[Access, ...]
    put: Callable[[Handle], None]
    settle: Callable[[], None]


def launch_work(launch: Launch, backend: Backend) -> Callable[[], None]:
    """Launches a kernel on the views that it declared, as they are now."""
    views = [
        storage_of(use.buffer).tensor if use.rows is None else storage_of(use.buffer).part(use.rows)
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


def _zeros_like(use: Use) -> Tensor:
    tensor = storage_of(use.buffer).memory
    rows = tensor.shape[0] if use.rows is None else use.rows
    return tensor.new_zeros((rows, *tensor.shape[1:]))


def pass_owners(
    launch: Launch, recorder: Recorder, operation: str, step: int
) -> Callable[[], None]:
    """Checks and sets the owners that a launch declares."""
    uses = [use for use in launch.uses if use.expect or use.own]
    if not uses:
        return no_owners

    def settle() -> None:
        for use in uses:
            check_owners(use, recorder, operation, step)
        set_owners(uses)

    return settle


def no_owners() -> None:
    """What carries nobody's values settles nothing."""


def copy_range(
    cuda: CudaDriver, target: Buffer, source: Buffer, first: int, end: int
) -> StreamWork:
    """Rows first .. end - 1, with their owners."""
    mask = prefix_mask(end) ^ prefix_mask(first)
    require_live(target, source)
    to, origin = storage_of(target), storage_of(source)

    def put(stream: Handle) -> None:
        cuda.copy(stream, to.part(end, first=first), origin.part(end, first=first))

    def settle() -> None:
        to.owners[first:end] = origin.owners[first:end]

    accesses = (source.access(mask, is_write=False), target.access(mask, is_write=True))
    return StreamWork(accesses=accesses, put=put, settle=settle)


def scatter_blocks(
    cuda: CudaDriver, target: Buffer, source: Buffer, blocks: Sequence[int]
) -> StreamWork:
    """Row i of the source to block blocks[i] of a pool. Blocks have no owners."""
    require_live(target, source)
    to, origin = storage_of(target), storage_of(source)

    def put(stream: Handle) -> None:
        for row, block in enumerate(blocks):
            cuda.copy(stream, to.memory[block], origin.memory[row])

    read = source.access(prefix_mask(len(blocks)), is_write=False)
    accesses = (read, target.access(mask_of(blocks), is_write=True))
    return StreamWork(accesses=accesses, put=put, settle=no_owners)


def gather_blocks(
    cuda: CudaDriver, target: Buffer, source: Buffer, blocks: Sequence[int]
) -> StreamWork:
    """Block blocks[i] of a pool to row i of the target."""
    require_live(target, source)
    to, origin = storage_of(target), storage_of(source)

    def put(stream: Handle) -> None:
        for row, block in enumerate(blocks):
            cuda.copy(stream, to.memory[row], origin.memory[block])

    read = source.access(mask_of(blocks), is_write=False)
    accesses = (read, target.access(prefix_mask(len(blocks)), is_write=True))
    return StreamWork(accesses=accesses, put=put, settle=no_owners)


def poison_work(cuda: CudaDriver, buffer: Buffer) -> StreamWork:
    """The whole buffer becomes poison that nobody owns."""
    storage = storage_of(buffer)
    word = bits_of(poison_of(buffer.dtype), buffer.dtype)
    whole = buffer.access(prefix_mask(buffer.shape[0]), is_write=True)
    put = partial(cuda.fill, target=storage.tensor, word=word)
    return StreamWork(accesses=(whole,), put=put, settle=storage.disown)
