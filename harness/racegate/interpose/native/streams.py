"""Streams by their handles: on which a thread gives work, on the GPU that is current there, and the
lane of each.
"""

from __future__ import annotations

from typing import Protocol

import torch

from racegate.order.recorder import Recorder

_bindings = torch._C
DEFAULT_STREAM = 0x100  # and the number of a GPU behind the first: its default stream


class TorchStream(Protocol):
    """Torch's, as far as it is needed here."""

    cuda_stream: int
    device_index: int


def current_stream() -> int:
    """Its handle, as the runtime of this process has it; 0 is the default stream of the first."""
    gpu = current_gpu()
    return _handle(_bindings._cuda_getCurrentRawStream(gpu), gpu)


def handle_of(stream: TorchStream) -> int:
    """Of one of torch's streams, likewise."""
    return _handle(stream.cuda_stream, stream.device_index)


def current_gpu() -> int:
    """A process that the program forked may not ask torch, and has the first one."""
    try:
        return int(_bindings._cuda_getDevice())
    except RuntimeError:
        return 0


def _handle(handle: int, gpu: int) -> int:
    return handle if handle or not gpu else DEFAULT_STREAM + gpu


def _gpu_of_default(handle: int) -> int:
    """Whose default stream this is; 0: of the first GPU, or it is another stream."""
    return handle - DEFAULT_STREAM if 0 <= handle - DEFAULT_STREAM < DEFAULT_STREAM else 0


class DeviceStreams:
    """The lanes of streams. known: by handle"""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        default = recorder.add_stream("the default stream", is_legacy=True)
        self.known = {0: default, 1: default}
        self._gpus: dict[int, int] = {}  # but for those of the first

    def lane(self, handle: int) -> int:
        """Made when it is first asked for: torch makes streams by dozens."""
        lane = self.known.get(handle)
        if lane is None:
            gpu = _gpu_of_default(handle)
            name = f"the default stream of GPU {gpu}" if gpu else f"stream {len(self.known) - 1}"
            lane = self.known.setdefault(handle, self._recorder.add_stream(name))
        return lane

    def handle(self, lane: int) -> int:
        """The stream of a lane, as the runtime knows it."""
        lane = self._recorder.lanes.stream_of(lane)
        return next(handle for handle, known in list(self.known.items()) if known == lane)

    def created(self, handle: int, gpu: int) -> None:
        """A stream of this GPU was created."""
        if gpu:
            self._gpus[handle] = gpu

    def blocks(self, handle: int) -> None:
        """This one waits for the default stream of the first GPU, which waits for it."""
        name = f"stream {len(self.known) - 1} (blocking)"
        self.known[handle] = self._recorder.add_stream(name, is_blocking=True)

    def of_gpu(self, gpu: int) -> list[int]:
        """The handles of all streams that were used there."""
        gpus = self._gpus
        known = list(self.known)  # another thread may use a new one meanwhile
        return [one for one in known if (gpus.get(one, 0) or _gpu_of_default(one)) == gpu]
