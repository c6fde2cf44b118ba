"""Whether there is a GPU to run on, asked of the driver before any process begins."""

from __future__ import annotations

import ctypes

_WHAT_TO_DO = "leave out --device cuda: the virtual device needs no GPU"


def why_no_gpu() -> str:
    """What is missing and what to do; empty if there is a GPU."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return f"no NVIDIA driver (libcuda.so.1) on this machine; {_WHAT_TO_DO}"
    count = ctypes.c_int(0)
    error = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if error or not count.value:
        return f"the NVIDIA driver finds no GPU (error {error}); {_WHAT_TO_DO}"
    return ""
