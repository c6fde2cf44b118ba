"""Settings of torch's allocator that a program puts into its own environment. torch reads them when
it is imported, and it was imported before the program began: so they are handed to it here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import torch

_NAMES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
_OTHER_BACKEND = "backend:cudaMallocAsync"


def track_allocator_settings(refuse: Callable[[str], None]) -> None:
    """From now on. refuse: called with a setting that is not modelled, must not return"""

    def seen(event: str, args: tuple[Any, ...]) -> None:
        if event == "os.putenv" and (name := os.fsdecode(args[0])) in _NAMES:
            _set(name, os.fsdecode(args[1]), refuse)

    sys.addaudithook(seen)


def _set(name: str, value: str, refuse: Callable[[str], None]) -> None:
    if _OTHER_BACKEND in value.replace(" ", ""):
        refuse(f"{_OTHER_BACKEND}, which the program sets by {name}")
    set_now: Any = getattr(torch._C, "_accelerator_setAllocatorSettings", None)
    if set_now is None:  # torch before 2.9
        set_now = torch._C._cuda_cudaCachingAllocator_set_allocator_settings
    set_now(value)
