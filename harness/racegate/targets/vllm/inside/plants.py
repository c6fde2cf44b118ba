"""Wrong values planted behind the runner's back: what is observed has to change with them.

They go where the runner itself keeps the value, one step before it is used, and the run ends with
that step: what a wrong index would touch later is nobody's memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch

from racegate.interpose.device.session import Session
from racegate.interpose.kernels.aliases import alias_of
from racegate.targets.common.inside.naming import host_tensors, shared_tensors
from racegate.targets.common.wire import Observed

PACKAGE = "vllm.v1"  # whose objects are looked into for tensors
STEP = 5  # of the probe: everything decodes
# Where runners keep a value, by the last names of the path.
_KEPT = {
    Observed.ACCEPTED: re.compile(r"num_accepted_tokens|valid_sampled_token_count"),
    Observed.LENGTHS: re.compile(r"num_computed_tokens|(^|\.)seq_lens"),
    Observed.SLOTS: re.compile(r"block_tables?(\.|$)"),
}
_INTEGERS = (torch.int32, torch.int64)
_NUMBERS = (*_INTEGERS, torch.float32)


def plant(session: Session, runner: Any, scheduled: Any, what: Observed) -> int:
    """Makes the runner's own copies of a value wrong, on host and device; how many there are.

    scheduled: what the scheduler tells it about the step: some releases take lengths from there
    """
    if what is Observed.LENGTHS:
        known = scheduled.scheduled_cached_reqs.num_computed_tokens
        known[:] = [length + 1 for length in known]
    pattern = _KEPT.get(what)
    if pattern is None:
        return 0
    tensors = [t for path, t in shared_tensors(runner, PACKAGE) if pattern.search(path)]
    with session.own(), torch.no_grad():
        kept = [t for t in tensors if t.dtype in _INTEGERS]
        for tensor in kept:
            alias = alias_of(session, tensor) if tensor.is_cuda else tensor
            if what is Observed.ACCEPTED:
                alias.remainder_(4).add_(1)
            else:
                alias.add_(1)

    return len(kept)


def spoil(session: Session, runner: Any, scheduled: Any, pattern: str) -> int:
    """Makes the runner's own tensors of these names wrong, on the device and the host, what the
    host alone has among them; how many there are. Or what the scheduler tells of a step.

    pattern: a regular expression, or a name of `TOLD`
    """
    if pattern in TOLD:
        return TOLD[pattern](scheduled)
    named = re.compile(pattern)
    tensors = (*shared_tensors(runner, PACKAGE), *host_tensors(runner, PACKAGE))
    kept = [t for path, t in tensors if named.search(path) and t.dtype in _NUMBERS]
    with session.own(), torch.no_grad():
        for tensor in kept:
            alias = alias_of(session, tensor) if tensor.is_cuda else tensor
            alias.add_(1)
    return len(kept)


def _fewer_drafts(scheduled: Any) -> int:
    """Each request that has drafts loses one."""
    drafts = scheduled.scheduled_spec_decode_tokens
    had = list(drafts.items())
    for name, tokens in had:
        drafts[name] = tokens[:-1]
        if not drafts[name]:
            del drafts[name]
        _lose(scheduled, name, 1)
    return len(had)


def _fewer_tokens(scheduled: Any) -> int:
    """Each request with a chunk of a prompt loses a token of it."""
    counts = scheduled.num_scheduled_tokens
    drafts = scheduled.scheduled_spec_decode_tokens
    chunks = [name for name, count in counts.items() if count > 1 and name not in drafts]
    for name in chunks:
        _lose(scheduled, name, 1)
    return len(chunks)


def _fewer_requests(scheduled: Any) -> int:
    """The last request of those that go on is not there, if others are."""
    cached, counts = scheduled.scheduled_cached_reqs, scheduled.num_scheduled_tokens
    if len(counts) < 2 or not cached.req_ids:
        return 0
    for each in (cached.new_block_ids, cached.num_computed_tokens, cached.num_output_tokens):
        each.pop()
    name = cached.req_ids.pop()
    scheduled.scheduled_spec_decode_tokens.pop(name, None)
    _lose(scheduled, name, counts[name])
    del counts[name]
    return 1


def _lose(scheduled: Any, name: str, tokens: int) -> None:
    """tokens: so many of a request's"""
    scheduled.num_scheduled_tokens[name] -= tokens
    scheduled.total_num_scheduled_tokens -= tokens


# What the scheduler tells of a step, made wrong.
TOLD: dict[str, Callable[[Any], int]] = {
    "scheduled drafts": _fewer_drafts,
    "scheduled tokens": _fewer_tokens,
    "scheduled requests": _fewer_requests,
}
