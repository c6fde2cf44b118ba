"""Threads: what a lock, a queue or a join orders on the host, and what only the device can.

The current stream belongs to the thread. Handing a tensor to another thread orders host code, not
device work.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch

from .registry import N, observe, racy, silent


@racy(pair="thread_download")
def thread_signals_when_issued() -> None:
    """A thread sets a flag once it has issued its download; the flag says nothing of the copy."""
    result, host = torch.ones(N, device="cuda"), torch.zeros(N, pin_memory=True)
    torch.cuda.synchronize()
    issued = threading.Event()

    def download() -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            host.copy_(result, non_blocking=True)
        issued.set()

    worker = threading.Thread(target=download)
    worker.start()
    issued.wait()
    observe("read", host.sum().item())
    worker.join()
    torch.cuda.synchronize()


@silent(pair="thread_download")
def thread_signals_when_landed() -> None:
    """The thread synchronises its stream before it sets the flag."""
    result, host = torch.ones(N, device="cuda"), torch.zeros(N, pin_memory=True)
    torch.cuda.synchronize()
    landed = threading.Event()

    def download() -> None:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            host.copy_(result, non_blocking=True)
        stream.synchronize()
        landed.set()

    worker = threading.Thread(target=download)
    worker.start()
    landed.wait()
    observe("read", host.sum().item())
    worker.join()


@racy(pair="thread_queue")
def queue_without_event() -> None:
    """The destination goes through a queue without the event that says when it has landed."""
    result, host = torch.ones(N, device="cuda"), torch.zeros(N, pin_memory=True)
    torch.cuda.synchronize()
    finished: queue.Queue[torch.Tensor] = queue.Queue()

    def download() -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            host.copy_(result, non_blocking=True)
        finished.put(host)

    worker = threading.Thread(target=download)
    worker.start()
    observe("read", finished.get().sum().item())
    worker.join()
    torch.cuda.synchronize()


@silent(pair="thread_queue")
def queue_with_event() -> None:
    """The destination goes through the queue with the event behind its copy, which the reader waits
    for.
    """
    result, host = torch.ones(N, device="cuda"), torch.zeros(N, pin_memory=True)
    torch.cuda.synchronize()
    finished: queue.Queue[tuple[torch.Tensor, torch.cuda.Event]] = queue.Queue()

    def download() -> None:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            host.copy_(result, non_blocking=True)
        finished.put((host, stream.record_event()))

    worker = threading.Thread(target=download)
    worker.start()
    tensor, landed = finished.get()
    landed.synchronize()
    observe("read", tensor.sum().item())
    worker.join()


@racy(pair="thread_fill")
def thread_fills_without_join() -> None:
    """A thread fills the pinned buffer; the upload is issued before the thread was joined."""
    source, target = torch.zeros(N, pin_memory=True), torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    worker = threading.Thread(target=lambda: source.fill_(1))
    worker.start()
    target.copy_(source, non_blocking=True)
    worker.join()
    torch.cuda.synchronize()
    observe("uploaded", target.sum().item())


@silent(pair="thread_fill")
def thread_fills_and_is_joined() -> None:
    """The thread that fills the buffer is joined before the upload."""
    source, target = torch.zeros(N, pin_memory=True), torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    worker = threading.Thread(target=lambda: source.fill_(1))
    worker.start()
    worker.join()
    target.copy_(source, non_blocking=True)
    torch.cuda.synchronize()
    observe("uploaded", target.sum().item())


@racy(pair="thread_host_only")
def thread_host_write_without_join() -> None:
    """Two threads of the host touch one pinned buffer; no device work is needed for a race."""
    source = torch.zeros(N, pin_memory=True).numpy()
    worker = threading.Thread(target=lambda: source.fill(1))
    worker.start()
    observe("read", float(source[0]))
    worker.join()


@silent(pair="thread_host_only")
def thread_host_write_with_join() -> None:
    """The writer is joined before the reader reads."""
    source = torch.zeros(N, pin_memory=True).numpy()
    worker = threading.Thread(target=lambda: source.fill(1))
    worker.start()
    worker.join()
    observe("read", float(source[0]))


@racy(pair="thread_future")
def future_of_issued_upload() -> None:
    """The future ends when the pool's thread has issued the upload on its stream; the consumer does
    not wait for it.
    """
    source, target = torch.ones(N, pin_memory=True), torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()

    def upload() -> torch.Tensor:
        with torch.cuda.stream(stream):
            return target.copy_(source, non_blocking=True)

    with ThreadPoolExecutor(1) as pool:
        total = pool.submit(upload).result().sum()
    torch.cuda.synchronize()
    observe("total", total.item())


@silent(pair="thread_future")
def future_of_recorded_upload() -> None:
    """The future hands over the event of the upload and the consumer's stream waits for it."""
    source, target = torch.ones(N, pin_memory=True), torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()

    def upload() -> torch.cuda.Event:
        with torch.cuda.stream(stream):
            target.copy_(source, non_blocking=True)
        return stream.record_event()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(upload).result().wait()
        total = target.sum()
    torch.cuda.synchronize()
    observe("total", total.item())


@racy(pair="thread_lock")
def lock_around_issue() -> None:
    """The lock is held while the upload is issued, not until it has read its source."""
    source, target = torch.ones(N, pin_memory=True), torch.zeros(N, device="cuda")
    lock = threading.Lock()
    with lock:
        target.copy_(source, non_blocking=True)

    def rewrite() -> None:
        with lock:
            source.fill_(2)

    worker = threading.Thread(target=rewrite)
    worker.start()
    worker.join()
    torch.cuda.synchronize()
    observe("uploaded", target.sum().item())


@silent(pair="thread_lock")
def lock_around_upload() -> None:
    """The lock is held until the upload has completed."""
    source, target = torch.ones(N, pin_memory=True), torch.zeros(N, device="cuda")
    lock = threading.Lock()
    with lock:
        target.copy_(source, non_blocking=True)
        torch.cuda.current_stream().synchronize()

    def rewrite() -> None:
        with lock:
            source.fill_(2)

    worker = threading.Thread(target=rewrite)
    worker.start()
    worker.join()
    torch.cuda.synchronize()
    observe("uploaded", target.sum().item())


@racy(pair="thread_stream")
def thread_forgets_stream_context() -> None:
    """A thread started inside a stream context has the default stream: its kernel is beside the
    context's.
    """
    shared = torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        worker = threading.Thread(target=lambda: shared.fill_(1))
        worker.start()
        worker.join()
        total = shared.sum()
    torch.cuda.synchronize()
    observe("total", total.item())


@silent(pair="thread_stream")
def thread_enters_stream_context() -> None:
    """The thread enters the context itself: one stream runs both kernels in the order of the
    join.
    """
    shared = torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    side = torch.cuda.Stream()

    def write() -> None:
        with torch.cuda.stream(side):
            shared.fill_(1)

    with torch.cuda.stream(side):
        worker = threading.Thread(target=write)
        worker.start()
        worker.join()
        total = shared.sum()
    torch.cuda.synchronize()
    observe("total", total.item())


def _ring(before_release: Callable[[], None]) -> list[float]:
    """A thread fills two pinned slots in turn, the caller uploads them; a semaphore counts the free
    ones.
    """
    slots = torch.zeros(2, N, pin_memory=True)
    uploaded = torch.zeros(4, N, device="cuda")
    free = threading.Semaphore(2)
    filled: queue.Queue[int] = queue.Queue()

    def fill() -> None:
        for step in range(4):
            free.acquire()
            slots[step % 2].fill_(step + 1.0)
            filled.put(step)

    worker = threading.Thread(target=fill)
    worker.start()
    for _ in range(4):
        step = filled.get()
        uploaded[step].copy_(slots[step % 2], non_blocking=True)
        before_release()
        free.release()
    worker.join()
    torch.cuda.synchronize()
    return uploaded[:, 0].tolist()


@racy(pair="thread_ring")
def ring_released_when_issued() -> None:
    """A slot is released to the filling thread once its upload was issued."""
    observe("uploaded", _ring(before_release=lambda: None))


@silent(pair="thread_ring")
def ring_released_when_read() -> None:
    """A slot is released once its upload has read it."""
    observe("uploaded", _ring(before_release=torch.cuda.current_stream().synchronize))


@racy(pair="thread_simple_queue")
def simple_queue_without_wait() -> None:
    """The word goes through a SimpleQueue when the download was issued, not when it landed."""
    result, host = torch.ones(N, device="cuda"), torch.zeros(N, pin_memory=True)
    torch.cuda.synchronize()
    finished: queue.SimpleQueue[str] = queue.SimpleQueue()

    def download() -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            host.copy_(result, non_blocking=True)
        finished.put("issued")

    worker = threading.Thread(target=download)
    worker.start()
    finished.get()
    observe("read", host.sum().item())
    worker.join()
    torch.cuda.synchronize()


@silent(pair="thread_simple_queue")
def simple_queue_after_wait() -> None:
    """The thread waits for its stream before it puts the word into a SimpleQueue."""
    result, host = torch.ones(N, device="cuda"), torch.zeros(N, pin_memory=True)
    torch.cuda.synchronize()
    finished: queue.SimpleQueue[str] = queue.SimpleQueue()

    def download() -> None:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            host.copy_(result, non_blocking=True)
        stream.synchronize()
        finished.put("landed")

    worker = threading.Thread(target=download)
    worker.start()
    finished.get()
    observe("read", host.sum().item())
    worker.join()
