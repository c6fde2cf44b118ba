# expect = "conflict"
# says = ["d2h writes it on stream 1", "copy_batch"]
"""A batch of copies of the driver is not waited for before the host reads what it brought."""

import ctypes

import torch


def copy_batch(pairs, stream):
    """As libraries call it, by the name and the version that they were built for."""
    driver, call = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
    name = b"cuMemcpyBatchAsync"
    assert not driver.cuGetProcAddress_v2(name, ctypes.byref(call), 12080, ctypes.c_uint64(0), None)
    addresses = ctypes.c_uint64 * len(pairs)
    targets = addresses(*(to.data_ptr() for to, _ in pairs))
    sources = addresses(*(source.data_ptr() for _, source in pairs))
    sizes = (ctypes.c_size_t * len(pairs))(*(to.nbytes for to, _ in pairs))
    in_stream_order = (ctypes.c_int * 8)(1)
    prototype = ctypes.CFUNCTYPE(
        ctypes.c_int,
        *[ctypes.c_void_p] * 3,
        ctypes.c_size_t,
        *[ctypes.c_void_p] * 2,
        ctypes.c_size_t,
        *[ctypes.c_void_p] * 2,
    )
    first, failed = ctypes.c_size_t(0), ctypes.c_size_t(0)
    result = prototype(call.value)(
        targets,
        sources,
        sizes,
        len(pairs),
        in_stream_order,
        ctypes.addressof(first),
        1,
        ctypes.addressof(failed),
        stream.cuda_stream,
    )
    assert result == 0, result


blocks = [torch.full((8,), float(at), device="cuda") for at in range(3)]
kept = [torch.zeros(8, pin_memory=True) for _ in blocks]
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
copy_batch(list(zip(kept, blocks, strict=True)), side)
print([float(one.sum()) for one in kept])
