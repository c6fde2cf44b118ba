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
from racegate.device.memory import Buffer
from racegate.device.recorder import Recorder
from racegate.device.uses import Use
from racegate_kernels.backend import Backend
from racegate_kernels.poison import poison_of


@dataclass(frozen=True, slots=True)
class PutWork:
    """put: on the stream given; settle: the owners, when it has happened."""

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


def copy_range(cuda: CudaDriver, target: Buffer, source: Buffer, first: int, end: int) -> PutWork:
    """Rows first .. end - 1, with their owners."""
    to, origin = storage_of(target), storage_of(source)

    def put(stream: Handle) -> None:
        cuda.copy(stream, to.part(end, first=first), origin.part(end, first=first))

    def settle() -> None:
        to.owners[first:end] = origin.owners[first:end]

    return PutWork(put, settle)


def copy_blocks(
    cuda: CudaDriver, target: Buffer, source: Buffer, into: Sequence[int], out_of: Sequence[int]
) -> PutWork:
    """Row out_of[i] of the source to row into[i] of the target. Blocks have no owners."""
    to, origin = storage_of(target), storage_of(source)

    def put(stream: Handle) -> None:
        for place, row in zip(into, out_of, strict=True):
            cuda.copy(stream, to.memory[place], origin.memory[row])

    return PutWork(put, no_owners)


def poison_work(cuda: CudaDriver, buffer: Buffer) -> PutWork:
    """The whole buffer becomes poison that nobody owns."""
    storage = storage_of(buffer)
    word = bits_of(poison_of(buffer.dtype), buffer.dtype)
    return PutWork(partial(cuda.fill, target=storage.tensor, word=word), storage.disown)
