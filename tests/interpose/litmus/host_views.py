"""Host views of pinned memory: NumPy, memoryview, ctypes, DLPack and torch's own CPU operators see
the same bytes.
"""

from __future__ import annotations

import _thread
import ctypes
import io
import struct
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from .registry import N, observe, racy, silent


def _download_pending() -> tuple[torch.Tensor, torch.cuda.Event]:
    """A pinned tensor of zeros into which ones are being downloaded, and the event behind it."""
    result = torch.ones(N, device="cuda")
    host = torch.zeros(N, pin_memory=True)
    host.copy_(result, non_blocking=True)
    landed = torch.cuda.Event()
    landed.record()
    return host, landed


def _upload_pending() -> tuple[torch.Tensor, torch.Tensor, torch.cuda.Event]:
    """A pinned tensor of ones, the device tensor it is being uploaded to, and the event behind
    it.
    """
    source = torch.ones(N, pin_memory=True)
    target = source.to("cuda", non_blocking=True)
    read = torch.cuda.Event()
    read.record()
    return source, target, read


@racy(pair="numpy_read")
def numpy_view_read() -> None:
    """A NumPy view made before the download is read before it landed."""
    host, _ = _download_pending()
    observe("read", float(host.numpy()[0]))
    torch.cuda.synchronize()


@racy(pair="numpy_read")
def numpy_ufunc_of_slice() -> None:
    """A ufunc reads a slice of a view of a view."""
    host, _ = _download_pending()
    view = host.numpy()[8:].reshape(-1, 8)[:, :4]
    observe("read", float(np.add.reduce(view, axis=None)))
    torch.cuda.synchronize()


@racy(pair="numpy_read")
def numpy_fancy_index_read() -> None:
    """Fancy indexing copies out of the pinned memory at once."""
    host, _ = _download_pending()
    picked = host.numpy()[np.array([0, 5, 9])]
    torch.cuda.synchronize()
    observe("read", picked.tolist())


@silent(pair="numpy_read")
def numpy_view_read_after_event() -> None:
    """The event is waited for between making the view and reading it; making it is no access."""
    host, landed = _download_pending()
    view = host.numpy()
    landed.synchronize()
    observe("read", float(view[0]))


@silent(pair="numpy_read")
def numpy_copy_of_landed() -> None:
    """A copy taken after the wait is memory of its own, free of later downloads."""
    host, landed = _download_pending()
    landed.synchronize()
    kept = host.numpy().copy()
    host.copy_(torch.full((N,), 2.0, device="cuda"), non_blocking=True)
    observe("read", float(kept.sum()))
    torch.cuda.synchronize()


def _in_a_bare_thread(body: Callable[[], object]) -> None:
    """As a C library calls back: `threading` did not start the thread, nor did torch."""
    ended = threading.Event()

    def run() -> None:
        try:
            body()
        finally:
            ended.set()

    _thread.start_new_thread(run, ())
    ended.wait()


def _view_of_fresh_memory() -> Any:
    """A view that is made as soon as its memory exists, and whose second half is downloaded."""
    host = torch.empty(N, pin_memory=True)
    view = host.numpy()
    view[:] = 0
    host[N // 2 :].copy_(torch.ones(N // 2, device="cuda"), non_blocking=True)
    return view


@racy(pair="numpy_of_fresh")
def numpy_view_of_fresh_memory() -> None:
    """In a thread of a C library a NumPy view is made of new pinned memory; it is read from its
    beginning on before its second half has landed.
    """
    _in_a_bare_thread(lambda: observe("read", float(_view_of_fresh_memory().sum())))
    torch.cuda.synchronize()


@silent(pair="numpy_of_fresh")
def numpy_view_of_fresh_memory_after_wait() -> None:
    """The thread waits for its stream before it reads the view."""

    def body() -> None:
        view = _view_of_fresh_memory()
        torch.cuda.current_stream().synchronize()
        observe("read", float(view.sum()))

    _in_a_bare_thread(body)


@silent(pair="numpy_of_fresh")
def numpy_view_of_the_half_at_rest() -> None:
    """Only the half that is not downloaded is read."""
    _in_a_bare_thread(lambda: observe("read", float(_view_of_fresh_memory()[: N // 2].sum())))
    torch.cuda.synchronize()


@racy(pair="numpy_write")
def numpy_view_written() -> None:
    """The source in flight is rewritten through a NumPy view."""
    source, target, _ = _upload_pending()
    source.numpy()[:] = 2
    torch.cuda.synchronize()
    observe("uploaded", target.sum().item())


@racy(pair="numpy_write")
def numpy_out_argument() -> None:
    """The source in flight is the `out` of a ufunc."""
    source, target, _ = _upload_pending()
    view = source.numpy()
    np.add(np.ones(N, dtype=np.float32), 4, out=view)
    torch.cuda.synchronize()
    observe("uploaded", target.sum().item())


@racy(pair="numpy_write")
def from_numpy_alias_written() -> None:
    """`from_numpy` of the view is the same memory under a second tensor."""
    source, target, _ = _upload_pending()
    alias = torch.from_numpy(source.numpy())
    alias.fill_(2)
    torch.cuda.synchronize()
    observe("uploaded", target.sum().item())


@silent(pair="numpy_write")
def numpy_view_written_after_event() -> None:
    """The upload is waited for before the view is written."""
    source, target, read = _upload_pending()
    view = source.numpy()
    read.synchronize()
    view[:] = 2
    torch.cuda.synchronize()
    observe("uploaded", target.sum().item())


@silent(pair="numpy_write")
def numpy_copy_written() -> None:
    """What is rewritten is a copy of the source."""
    source, target, _ = _upload_pending()
    own = source.numpy().copy()
    own[:] = 2
    torch.cuda.synchronize()
    observe("uploaded", target.sum().item())


@racy(pair="memoryview_read")
def memoryview_read() -> None:
    """A memoryview of the pinned memory is read before the download landed."""
    host, _ = _download_pending()
    observe("read", memoryview(host.numpy())[3])
    torch.cuda.synchronize()


@silent(pair="memoryview_read")
def memoryview_read_after_event() -> None:
    """The memoryview is read after the event."""
    host, landed = _download_pending()
    view = memoryview(host.numpy())
    landed.synchronize()
    observe("read", view[3])


@racy(pair="memoryview_write")
def memoryview_filled_from_file() -> None:
    """`readinto` fills the source in flight from a file."""
    source, target, _ = _upload_pending()
    file = io.BytesIO(np.full(N, 2, dtype=np.float32).tobytes())
    file.readinto(memoryview(source.numpy()).cast("B"))
    torch.cuda.synchronize()
    observe("uploaded", target.sum().item())


@silent(pair="memoryview_write")
def memoryview_filled_after_event() -> None:
    """The upload is waited for before the file is read into its source."""
    source, target, read = _upload_pending()
    file = io.BytesIO(np.full(N, 2, dtype=np.float32).tobytes())
    read.synchronize()
    file.readinto(memoryview(source.numpy()).cast("B"))
    torch.cuda.synchronize()
    observe("uploaded", target.sum().item())


@racy(pair="ctypes_read")
def ctypes_read() -> None:
    """Raw bytes at `data_ptr()` are read before the download landed."""
    host, _ = _download_pending()
    raw = ctypes.string_at(host.data_ptr(), 8)
    torch.cuda.synchronize()
    observe("read", struct.unpack("ff", raw))


@silent(pair="ctypes_read")
def ctypes_read_after_event() -> None:
    """Raw bytes at `data_ptr()` are read after the event."""
    host, landed = _download_pending()
    landed.synchronize()
    raw = ctypes.string_at(host.data_ptr(), 8)
    observe("read", struct.unpack("ff", raw))


@racy(pair="ctypes_write")
def ctypes_memmove_into_source() -> None:
    """`memmove` writes into the source in flight by its address."""
    source, target, _ = _upload_pending()
    fresh = np.full(N, 2, dtype=np.float32)
    ctypes.memmove(source.data_ptr(), fresh.ctypes.data, fresh.nbytes)
    torch.cuda.synchronize()
    observe("uploaded", target.sum().item())


@silent(pair="ctypes_write")
def ctypes_memmove_after_event() -> None:
    """The upload is waited for before `memmove` writes into its source."""
    source, target, read = _upload_pending()
    fresh = np.full(N, 2, dtype=np.float32)
    read.synchronize()
    ctypes.memmove(source.data_ptr(), fresh.ctypes.data, fresh.nbytes)
    torch.cuda.synchronize()
    observe("uploaded", target.sum().item())


@racy(pair="ctypes_array")
def ctypes_array_over_source() -> None:
    """A ctypes array over the pinned address is assigned to while the upload is in flight."""
    source, target, _ = _upload_pending()
    words = (ctypes.c_float * N).from_address(source.data_ptr())
    words[0] = 9.0
    torch.cuda.synchronize()
    observe("uploaded", target[0].item())


@silent(pair="ctypes_array")
def ctypes_array_beside_source() -> None:
    """The ctypes array lies over elements that are not in flight."""
    source = torch.ones(N, pin_memory=True)
    target = source[: N // 2].to("cuda", non_blocking=True)
    words = (ctypes.c_float * (N // 2)).from_address(source.data_ptr() + 4 * (N // 2))
    words[0] = 9.0
    torch.cuda.synchronize()
    observe("uploaded", target[0].item())


@racy(pair="dlpack")
def dlpack_alias_read() -> None:
    """An array made through DLPack is the pinned memory itself."""
    host, _ = _download_pending()
    observe("read", float(np.from_dlpack(host)[0]))
    torch.cuda.synchronize()


@silent(pair="dlpack")
def dlpack_alias_read_after_event() -> None:
    """The alias made through DLPack is read after the event."""
    host, landed = _download_pending()
    alias = np.from_dlpack(host)
    landed.synchronize()
    observe("read", float(alias[0]))


@racy(pair="cpu_operators")
def python_scalar_of_pending() -> None:
    """`item()` of a pinned tensor is a plain read of host memory; it waits for nothing."""
    host, _ = _download_pending()
    observe("read", host[0].item())
    torch.cuda.synchronize()


@racy(pair="cpu_operators")
def branch_on_pending() -> None:
    """`if tensor.any()` reads the pinned memory to decide."""
    host, _ = _download_pending()
    taken = "some" if host.any() else "none"
    torch.cuda.synchronize()
    observe("branch", taken)


@racy(pair="cpu_operators")
def tolist_of_pending() -> None:
    """`tolist()` of a slice reads the pinned memory element by element."""
    host, _ = _download_pending()
    observe("read", host[:4].tolist())
    torch.cuda.synchronize()


@racy(pair="cpu_operators")
def cpu_operator_out_pinned() -> None:
    """A CPU operator writes its `out` into the source in flight."""
    source, target, _ = _upload_pending()
    torch.add(torch.ones(N), 1, out=source)
    torch.cuda.synchronize()
    observe("uploaded", target.sum().item())


@silent(pair="cpu_operators")
def cpu_operators_after_event() -> None:
    """Every host read stands behind the event."""
    host, landed = _download_pending()
    landed.synchronize()
    taken = "some" if host.any() else "none"
    observe("read", [host[0].item(), *host[:4].tolist(), taken])


@silent(pair="cpu_operators")
def metadata_of_pending() -> None:
    """Shapes, strides, views and addresses are no accesses."""
    host, _ = _download_pending()
    view = host.view(32, 32).t()[3:]
    facts = (tuple(view.shape), view.stride(), view.is_contiguous(), host.is_pinned())
    torch.cuda.synchronize()
    observe("facts", facts)
