# expect = "silent"
# twin = ["driver_copies_not_waited"]
"""Copies and waits by the names that the driver has for them, with a host function between."""

import ctypes

import torch
from shared.driver import DRIVER

there, host = torch.full((8,), 5.0, device="cuda"), torch.zeros(8, pin_memory=True)
torch.cuda.synchronize()
stream, called = ctypes.c_void_p(), []
assert not DRIVER.cuStreamCreate(ctypes.byref(stream), 1)
to, source, size = (
    ctypes.c_void_p(host.data_ptr()),
    ctypes.c_uint64(there.data_ptr()),
    ctypes.c_size_t(host.nbytes),
)
assert not DRIVER.cuMemcpyDtoHAsync_v2(to, source, size, stream)
note = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: called.append(True))
assert not DRIVER.cuLaunchHostFunc(stream, note, None)
assert not DRIVER.cuStreamSynchronize(stream)
assert (float(host.sum()), called) == (40.0, [True])
host.fill_(2.0)
assert not DRIVER.cuMemcpyHtoDAsync_v2(source, to, size, stream)
assert not DRIVER.cuStreamSynchronize(stream)
assert float(there.sum()) == 16.0
