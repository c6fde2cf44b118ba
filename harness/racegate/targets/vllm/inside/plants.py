"""Wrong values planted behind the runner's back: what is observed has to change with them.

They go where the runner itself keeps the value, one step before it is used, and the run ends with
that step: what a wrong index would touch later is nobody's memory.
"""

from __future__ import annotations

import re
from typing import Any

import torch

from racegate.interpose.device.session import Session
from racegate.interpose.kernels.aliases import alias_of
from racegate.targets.common.inside.naming import shared_tensors
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


def spoil(session: Session, runner: Any, pattern: str) -> int:
    """Makes the runner's own tensors of these names wrong, on host and device; how many there are.

    pattern: a regular expression
    """
    named = re.compile(pattern)
    tensors = [t for path, t in shared_tensors(runner, PACKAGE) if named.search(path)]
    kept = [tensor for tensor in tensors if tensor.dtype in _NUMBERS]
    with session.own(), torch.no_grad():
        for tensor in kept:
            alias = alias_of(session, tensor) if tensor.is_cuda else tensor
            alias.add_(1)
    return len(kept)
