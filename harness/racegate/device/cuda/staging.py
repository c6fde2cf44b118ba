"""Staging: host arrays on their way to the device, through pinned memory."""

from __future__ import annotations

import numpy as np

from racegate.device.cuda.driver import CudaDriver, Handle, Tensor

# Pinned at most for what goes to the device in pieces; what is much smaller is pinned whole.
STAGE_BYTES = 64 << 20


class Staging:
    """Copies on one stream, which has no latches."""

    __slots__ = ("_cuda", "_event", "_pinned", "_stream")

    def __init__(self, cuda: CudaDriver, stream: Handle) -> None:
        self._cuda = cuda
        self._stream = stream
        self._event = cuda.event()
        self._pinned = np.empty(0, np.uint8)

    def copy(self, target: Tensor, values: np.ndarray) -> None:
        """Flat values. Weights go in pieces: they are larger than what the host should pin."""
        if values.nbytes <= STAGE_BYTES // 64:
            self._copy(target, values, self._cuda.pinned((values.nbytes,), np.uint8))
            return
        if self._pinned.nbytes == 0:
            self._pinned = self._cuda.pinned((STAGE_BYTES,), np.uint8)
        most = STAGE_BYTES // values.itemsize
        for first in range(0, len(values), most):
            part = values[first : first + most]
            self._copy(target[first : first + len(part)], part, self._pinned)
            self.wait()

    def _copy(self, target: Tensor, values: np.ndarray, pinned: np.ndarray) -> None:
        staged = pinned[: values.nbytes]
        staged[...] = values.view(np.uint8)
        self._cuda.copy(self._stream, target, staged.view(values.dtype))

    def wait(self) -> None:
        """Until the stream is empty."""
        self._cuda.record(self._event, self._stream)
        self._cuda.synchronize(self._event)
