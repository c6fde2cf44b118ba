# expect = "not modelled"
# says = ["io_uring_enter", "later.py:16"]
"""The kernel is told by io_uring to touch memory when it likes, while the device may be writing."""

import ctypes

import torch

IO_URING_ENTER = 426

libc = ctypes.CDLL(None)
host = torch.zeros(64, pin_memory=True)
host.copy_(torch.ones(64, device="cuda"), non_blocking=True)


libc.syscall(ctypes.c_long(IO_URING_ENTER), 0, 0, 0, 0, None, 0)
