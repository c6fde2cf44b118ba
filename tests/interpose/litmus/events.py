"""Events: what a record covers, what a wait binds to, and what a query says."""

from __future__ import annotations

import torch

from .registry import N, observe, racy, silent


@racy(pair="event_place")
def event_too_early() -> None:
    """The event is recorded before the kernel that it should cover."""
    shared = torch.zeros(N, device="cuda")
    seen = torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    ready = torch.cuda.Event()
    ready.record()
    shared.fill_(1)
    side.wait_event(ready)
    with torch.cuda.stream(side):
        seen.copy_(shared)
    torch.cuda.synchronize()
    observe("seen", seen.sum().item())


@silent(pair="event_place")
def event_in_place() -> None:
    """The event is recorded after the kernel and waited for before its result is read."""
    shared = torch.zeros(N, device="cuda")
    seen = torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    ready = torch.cuda.Event()
    shared.fill_(1)
    ready.record()
    side.wait_event(ready)
    with torch.cuda.stream(side):
        seen.copy_(shared)
    torch.cuda.synchronize()
    observe("seen", seen.sum().item())


@racy(pair="event_stream")
def event_on_wrong_stream() -> None:
    """The copy is on a side stream, the event on the current one: the wait orders nothing."""
    result = torch.ones(N, device="cuda")
    host = torch.zeros(N, pin_memory=True)
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    landed = torch.cuda.Event()
    with torch.cuda.stream(side):
        host.copy_(result, non_blocking=True)
    landed.record()
    landed.synchronize()
    observe("read", host.sum().item())
    torch.cuda.synchronize()


@silent(pair="event_stream")
def event_on_copy_stream() -> None:
    """The event is recorded on the stream of the copy."""
    result = torch.ones(N, device="cuda")
    host = torch.zeros(N, pin_memory=True)
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    landed = torch.cuda.Event()
    with torch.cuda.stream(side):
        host.copy_(result, non_blocking=True)
    landed.record(side)
    landed.synchronize()
    observe("read", host.sum().item())


@racy(pair="event_waiter")
def event_waited_by_wrong_stream() -> None:
    """`event.wait()` outside the stream context makes the default stream wait, not the reader."""
    shared = torch.zeros(N, device="cuda")
    seen = torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    reader = torch.cuda.Stream()
    ready = torch.cuda.Event()
    shared.fill_(1)
    ready.record()
    ready.wait()
    with torch.cuda.stream(reader):
        seen.copy_(shared)
    torch.cuda.synchronize()
    observe("seen", seen.sum().item())


@silent(pair="event_waiter")
def event_waited_by_reader() -> None:
    """`event.wait(reader)` makes the stream wait that reads."""
    shared = torch.zeros(N, device="cuda")
    seen = torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    reader = torch.cuda.Stream()
    ready = torch.cuda.Event()
    shared.fill_(1)
    ready.record()
    ready.wait(reader)
    with torch.cuda.stream(reader):
        seen.copy_(shared)
    torch.cuda.synchronize()
    observe("seen", seen.sum().item())


@racy(pair="event_record_wait")
def event_waited_before_record() -> None:
    """A wait binds to the records made before it; an event never recorded is waited for at once.

    CUDA Runtime API, cudaStreamWaitEvent: the wait captures the event as it is when the call is
    made.
    """
    shared = torch.zeros(N, device="cuda")
    seen = torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    ready = torch.cuda.Event()
    side.wait_event(ready)
    shared.fill_(1)
    ready.record()
    with torch.cuda.stream(side):
        seen.copy_(shared)
    torch.cuda.synchronize()
    observe("seen", seen.sum().item())


@silent(pair="event_record_wait")
def event_recorded_again_after_wait() -> None:
    """A later record does not weaken a wait that was issued before it."""
    shared = torch.zeros(N, device="cuda")
    seen = torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    side, other = torch.cuda.Stream(), torch.cuda.Stream()
    ready = torch.cuda.Event()
    shared.fill_(1)
    ready.record()
    side.wait_event(ready)
    ready.record(other)
    with torch.cuda.stream(side):
        seen.copy_(shared)
    torch.cuda.synchronize()
    observe("seen", seen.sum().item())


@racy(pair="event_shared")
def event_shared_by_two_streams() -> None:
    """One event serves two copy streams: the second record replaces the first, whose copy nobody
    waits for.
    """
    rows = torch.ones(2, N, device="cuda")
    host = torch.zeros(2, N, pin_memory=True)
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    landed = torch.cuda.Event()
    for row, stream in enumerate(streams):
        with torch.cuda.stream(stream):
            host[row].copy_(rows[row], non_blocking=True)
            landed.record()
    landed.synchronize()
    observe("read", host.sum(dim=1).tolist())
    torch.cuda.synchronize()


@silent(pair="event_shared")
def event_for_each_stream() -> None:
    """Each copy stream has its own event and both are waited for."""
    rows = torch.ones(2, N, device="cuda")
    host = torch.zeros(2, N, pin_memory=True)
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    landed = [torch.cuda.Event(), torch.cuda.Event()]
    for row, stream in enumerate(streams):
        with torch.cuda.stream(stream):
            host[row].copy_(rows[row], non_blocking=True)
            landed[row].record()
    for event in landed:
        event.synchronize()
    observe("read", host.sum(dim=1).tolist())


@racy(pair="event_pool")
def event_pool_takes_back_early() -> None:
    """The pool hands an event out again before its first user waited: that user now waits for
    somebody else.
    """
    rows = torch.ones(2, N, device="cuda")
    host = torch.zeros(2, N, pin_memory=True)
    torch.cuda.synchronize()
    download, compute = torch.cuda.Stream(), torch.cuda.Stream()
    pool = [torch.cuda.Event()]
    landed = pool.pop()
    with torch.cuda.stream(download):
        host[0].copy_(rows[0], non_blocking=True)
        landed.record()
    pool.append(landed)  # given back while it is still to be waited for
    computed = pool.pop()
    with torch.cuda.stream(compute):
        rows[1].mul_(3)
        computed.record()
    landed.synchronize()
    observe("read", host[0].sum().item())
    torch.cuda.synchronize()


@silent(pair="event_pool")
def event_pool_takes_back_after_wait() -> None:
    """The event goes back to the pool once it was waited for, and serves the next user."""
    rows = torch.ones(2, N, device="cuda")
    host = torch.zeros(2, N, pin_memory=True)
    torch.cuda.synchronize()
    download = torch.cuda.Stream()
    pool = [torch.cuda.Event()]
    seen = []
    for row in range(2):
        landed = pool.pop()
        with torch.cuda.stream(download):
            host[row].copy_(rows[row], non_blocking=True)
            landed.record()
        landed.synchronize()
        pool.append(landed)
        seen.append(host[row].sum().item())
    observe("read", seen)


@racy(pair="event_chain")
def event_chain_with_missing_link() -> None:
    """The third stream waits for the second, which never waited for the first."""
    shared = torch.zeros(N, device="cuda")
    seen = torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    first, second, third = (torch.cuda.Stream() for _ in range(3))
    with torch.cuda.stream(first):
        shared.fill_(1)
    third.wait_stream(second)
    with torch.cuda.stream(third):
        seen.copy_(shared)
    torch.cuda.synchronize()
    observe("seen", seen.sum().item())


@silent(pair="event_chain")
def event_chain_is_transitive() -> None:
    """The second stream waits for the first and the third for the second: the order is passed
    on.
    """
    shared = torch.zeros(N, device="cuda")
    seen = torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    first, second, third = (torch.cuda.Stream() for _ in range(3))
    with torch.cuda.stream(first):
        shared.fill_(1)
    second.wait_stream(first)
    third.wait_stream(second)
    with torch.cuda.stream(third):
        seen.copy_(shared)
    torch.cuda.synchronize()
    observe("seen", seen.sum().item())


@racy(pair="query")
def query_answer_ignored() -> None:
    """The event is asked a few times and the destination is read whatever the answers were."""
    result = torch.ones(N, device="cuda")
    host = torch.zeros(N, pin_memory=True)
    host.copy_(result, non_blocking=True)
    landed = torch.cuda.Event()
    landed.record()
    for _ in range(3):
        if landed.query():
            break
    observe("read", host.sum().item())
    torch.cuda.synchronize()


@racy(pair="query")
def query_of_stale_record() -> None:
    """The event still stands for the step before, so `query` says ready while this copy is in
    flight.
    """
    result = torch.ones(N, device="cuda")
    host = torch.zeros(N, pin_memory=True)
    landed = torch.cuda.Event()
    landed.record()
    landed.synchronize()
    host.copy_(result, non_blocking=True)
    while not landed.query():
        pass
    observe("read", host.sum().item())
    torch.cuda.synchronize()


@silent(pair="query")
def query_until_ready() -> None:
    """A `query` that answered ready is as good as a wait."""
    result = torch.ones(N, device="cuda")
    host = torch.zeros(N, pin_memory=True)
    host.copy_(result, non_blocking=True)
    landed = torch.cuda.Event()
    landed.record()
    while not landed.query():
        pass
    observe("read", host.sum().item())


@silent(pair="query")
def query_or_wait() -> None:
    """If `query` says not ready, the program waits; it reads in neither case too early."""
    result = torch.ones(N, device="cuda")
    host = torch.zeros(N, pin_memory=True)
    host.copy_(result, non_blocking=True)
    landed = torch.cuda.Event()
    landed.record()
    if not landed.query():
        landed.synchronize()
    observe("read", host.sum().item())


@silent(pair="query")
def query_stream_until_idle() -> None:
    """`stream.query()` that answered True means that everything issued to the stream has
    completed.
    """
    result = torch.ones(N, device="cuda")
    host = torch.zeros(N, pin_memory=True)
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        host.copy_(result, non_blocking=True)
    while not side.query():
        pass
    observe("read", host.sum().item())


@racy(pair="event_timing")
def event_start_mistaken_for_end() -> None:
    """Of two timing events the one before the copy is waited for."""
    result = torch.ones(N, device="cuda")
    host = torch.zeros(N, pin_memory=True)
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    host.copy_(result, non_blocking=True)
    end.record()
    start.synchronize()
    observe("read", host.sum().item())
    torch.cuda.synchronize()


@silent(pair="event_timing")
def event_end_waited_for() -> None:
    """Of two timing events the one behind the copy is waited for."""
    result = torch.ones(N, device="cuda")
    host = torch.zeros(N, pin_memory=True)
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    host.copy_(result, non_blocking=True)
    end.record()
    end.synchronize()
    observe("read", host.sum().item())
