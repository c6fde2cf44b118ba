"""The stream on which a thread gives work, on the GPU that is current there."""

from __future__ import annotations

import torch

_bindings = torch._C


def current_stream() -> int:
    """Its handle, as the runtime knows it; 0 is the default stream of any GPU."""
    stream: int = _bindings._cuda_getCurrentRawStream(_current_gpu())
    return stream


def _current_gpu() -> int:
    """A process that the program forked may not ask torch, and has the first one."""
    try:
        return int(_bindings._cuda_getDevice())
    except RuntimeError:
        return 0
