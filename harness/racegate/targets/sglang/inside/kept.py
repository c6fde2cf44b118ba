"""What the host keeps of requests between iterations of the event loop, what it hands to a forward
pass, and what it gives back: fields of the scheduler, its batches, requests, pools and outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from racegate.targets.common.inside.fields import by_name, fields_of
from racegate.targets.common.inside.watch import Values, Watch
from racegate.targets.common.wire import KEPT
from racegate.targets.sglang.inside.tensors import free_lists, kept_prefixes, note_free
from racegate.targets.sglang.inside.watch import nodes_of

_BATCHES = ("running_batch", "last_batch")
# Endings of more fields that no two runs have in common: clocks, and what the start has drawn.
_ITS_OWN = ("_ts", "_tic", "_us", "_ms", "_ns", "_time_start", "_port")
_SIZES = ("available_size", "evictable_size", "protected_size", "total_size")


def watch_kept(watch: Watch, scheduler: Any) -> Callable[[], None]:
    """What is to be called at the top of an iteration of the event loop."""

    def note() -> None:
        with watch.own():
            found = _of_scheduler(scheduler)
        watch.inner_on_host(f"{KEPT} in the scheduler", **found)
        note_free(watch, _pools(scheduler))

    return note


def watch_passes(watch: Watch, runner: Any) -> None:
    """What the host says of each forward pass, beside the tensors that its kernels are given."""
    plain = runner.forward

    def forward(batch: Any, *args: Any, **kwargs: Any) -> Any:
        with watch.own():
            found = _of_all_runs(fields_of(batch))
        watch.inner_on_host(f"{KEPT} for the runner", **found)
        return plain(batch, *args, **kwargs)

    runner.forward = forward


def note_output(watch: Watch, output: Any) -> None:
    """What clients are given of a step."""
    with watch.own():
        found = _of_all_runs(fields_of(output))
    watch.inner_on_host(f"{KEPT} for clients", **found)


def _of_scheduler(scheduler: Any) -> Values:
    told = fields_of(scheduler)
    found = {name: value for name, value in told.items() if _is_of_all_runs(value)}
    for name in _BATCHES:
        batch = getattr(scheduler, name, None)
        if batch is not None:
            found |= fields_of(batch, name) | _statistics(batch, name)
    requests = {one.rid: one for one in _requests(scheduler)}
    found |= by_name(requests, "requests")
    held = {name: one.kv for name, one in requests.items() if hasattr(one, "kv")}
    found |= by_name(held, "requests.kv")
    tracker = getattr(scheduler, "new_token_ratio_tracker", None)
    if tracker is not None:
        found |= fields_of(tracker, "ratio")
    if hasattr(scheduler.tree_cache, "root_node"):
        found["tree.prefixes"] = kept_prefixes(nodes_of(scheduler.tree_cache))
    return _of_all_runs(found | _sizes(scheduler) | free_lists(_pools(scheduler)))


def _statistics(batch: Any, name: str) -> Values:
    """What is logged of a prefill, and counted."""
    found = getattr(batch, "prefill_stats", None)
    return {} if found is None else fields_of(found, f"{name}.prefill_stats")


def _is_of_all_runs(value: object) -> bool:
    """Counts, flags and names, and lists of names. The rest are clocks, places, and records of
    steps for those who look for mistakes.
    """
    if isinstance(value, list):
        return all(isinstance(one, str) for one in value)
    return value is None or isinstance(value, int) or (isinstance(value, str) and "/" not in value)


def _requests(scheduler: Any) -> Iterator[Any]:
    """All that wait or run, one of them more than once."""
    yield from scheduler.waiting_queue
    for name in _BATCHES:
        batch = getattr(scheduler, name, None)
        yield from () if batch is None else batch.reqs
    chunked = getattr(scheduler, "chunked_req", None)
    yield from () if chunked is None else (chunked,)


def _pools(scheduler: Any) -> dict[str, Any]:
    rows = scheduler.req_to_token_pool
    states = getattr(rows, "mamba_allocator", getattr(rows, "mamba_pool", None))
    return {"slots": scheduler.token_to_kv_pool_allocator, "rows": rows, "states": states}


def _sizes(scheduler: Any) -> Values:
    """How much is free, and how much of the radix cache may go."""
    parts = _pools(scheduler) | {"tree": scheduler.tree_cache}
    found: Values = {}
    for name, part in parts.items():
        for size in _SIZES:
            if callable(ask := getattr(part, size, None)):
                found[f"{name}.{size}"] = _number(ask())
    return found


def _number(value: Any) -> object:
    """A size; of several kinds of memory some releases say one for each."""
    return int(value) if hasattr(value, "__int__") else repr(value)


def _of_all_runs(found: Values) -> Values:
    return {name: value for name, value in found.items() if not name.endswith(_ITS_OWN)}
