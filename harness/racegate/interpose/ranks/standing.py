"""Where the threads of a rank stand, and for whom they wait there."""

from __future__ import annotations

import os
import threading
from types import FrameType
from typing import Any

import torch

from racegate.interpose.device.frames import is_program_file
from racegate.interpose.program import threads
from racegate.interpose.ranks import works

_DISTRIBUTED = os.path.join("", "torch", "distributed", "")
# Of torchrun, of torch's `spawn`, and of `Process.join`.
_LAUNCHERS = (
    os.path.join(_DISTRIBUTED, "elastic", ""),
    os.path.join("", "torch", "multiprocessing", "spawn.py"),
    os.path.join("", "multiprocessing", "popen_"),
)


def native_number(ident: int) -> int:
    """Of a thread, as the kernel has it; 0 if nobody knows. The main thread has that of its
    process, also where that was forked.
    """
    if ident == threading.main_thread().ident:
        return os.getpid()
    thread = threading._active.get(ident)  # type: ignore[attr-defined]
    return 0 if thread is None or thread.native_id is None else int(thread.native_id)


def only_pins(frame: FrameType | None) -> bool:
    """Whether a thread is one of a data loader's that moves batches to pinned memory."""
    while frame is not None:
        if frame.f_code.co_name == "_pin_memory_loop":
            return True
        frame = frame.f_back
    return False


def rank_of_program(rank: int) -> int:
    """Torch's, of all that it has; or that of whoever asks."""
    group: Any = torch.distributed
    return int(group.get_rank()) if group.is_initialized() else rank


def is_launching(frame: FrameType | None) -> bool:
    """Whether a thread waits for processes that it has started as ranks."""
    while frame is not None:
        if any(name in frame.f_code.co_filename for name in _LAUNCHERS):
            return True
        frame = frame.f_back
    return False


def is_in_group(frame: FrameType | None) -> bool:
    """Whether a thread is in a call of torch.distributed."""
    while frame is not None and not is_program_file(frame.f_code.co_filename):
        name, code_name = frame.f_code.co_filename, frame.f_code.co_name
        is_wait = name == works.__file__ or (name == threads.__file__ and code_name == "wait")
        if is_wait or _DISTRIBUTED in name:
            return True
        frame = frame.f_back
    return False


def own_gpu() -> str:
    """The GPU of this process that is current, as the machine numbers it."""
    current = torch.cuda.current_device()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    return visible[current].strip() if len(visible) > current and visible[current] else str(current)
