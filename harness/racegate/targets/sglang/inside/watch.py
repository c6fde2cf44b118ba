"""What is observed of a scheduler: what each forward pass is given and what it says, and at the end
what the radix cache keeps for each prefix.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import torch

from racegate.interpose.device.session import Session
from racegate.interpose.kernels.aliases import alias_of
from racegate.targets.common.inside.session import EngineSession, Tensor
from racegate.targets.common.inside.watch import Values, Watch
from racegate.targets.sglang.inside.truth import BATCH, ROWS
from racegate.targets.sglang.wire import DRAFT_LEN, TOKENS_MAX

GIVEN = ("input_ids", "req_pool_indices", "seq_lens", "positions", "out_cache_loc")


class SchedulerWatch(Watch):
    """Observations of one run."""

    def __init__(self, session: EngineSession) -> None:
        super().__init__(session)
        self.device = session

    def digest(self, name: str, tensor: Tensor) -> None:
        """The digest of a device tensor, as of this place on the current stream."""
        session = self.device.session
        values: Values = {}
        self._add((self.step, name, values))
        with session.own():
            alias = alias_of(session, tensor)

        def run() -> None:
            with session.own():
                values["digest"] = digest_of(alias)

        session.issue(f"observe {name}", torch._C._cuda_getCurrentRawStream(0), (), (), run)


def digest_of(*tensors: Tensor) -> str:
    """Of the values of host tensors."""
    made = hashlib.sha256()
    for tensor in tensors:
        made.update(tensor.contiguous().numpy().tobytes())
    return made.hexdigest()[:16]


def watch_forward(watch: SchedulerWatch, scheduler: Any) -> None:
    """Each forward pass: its inputs as the forward stream has them, and its logits."""
    runner = scheduler.tp_worker.model_runner
    plain = runner.forward

    def forward(batch: Any, *args: Any, **kwargs: Any) -> Any:
        given = {name: getattr(batch, name, None) for name in GIVEN}
        tensors = {name: tensor for name, tensor in given.items() if tensor is not None}
        watch.on_device(BATCH, tensors)
        _see_rows(watch, runner, batch)
        watch.counters["overlapped_ops"] += bool(getattr(scheduler, "result_queue", ()))
        made = plain(batch, *args, **kwargs)
        result: Any = made[0] if isinstance(made, tuple) else made
        logits: Any = getattr(result, "logits_output", result)
        watch.digest("logits", logits.next_token_logits)
        return made

    runner.forward = forward
    process = scheduler.process_batch_result

    def process_batch_result(batch: Any, result: Any) -> Any:
        for request in batch.reqs:
            watch.counters["discarded_rows"] += _is_middle_chunk(request)
        return process(batch, result)

    scheduler.process_batch_result = process_batch_result


def _see_rows(watch: SchedulerWatch, runner: Any, batch: Any) -> None:
    """Whose the tokens of a pass are, and the slots of each: of a prefill, and of a step that
    decodes or verifies drafts. starts: what is computed of each before, as the scheduler has it;
    None if all decode
    """
    names, mode = getattr(batch, "rids", None), batch.forward_mode
    lengths: Any = getattr(batch, "seq_lens_cpu", None)
    verifies = mode.is_target_verify()
    if names is None or not (mode.is_decode() or mode.is_extend()):
        return
    if lengths is None and not verifies:
        return
    decodes = verifies or mode.is_decode()
    count = 1 + DRAFT_LEN if verifies else 1
    with watch.own():
        # Of drafts the host does not know how many were accepted, and so not how long requests are.
        most = TOKENS_MAX + count if verifies else int(lengths.max())
        rows = watch.memory_of(batch.req_pool_indices)
    watch.inner_look(
        ROWS,
        {"table": runner.req_to_token_pool.req_to_token},
        {"table": lambda table: table[rows.long(), :most]},
        requests=list(names),
        drafts=count - 1,
        starts=None if decodes else [int(one) for one in batch.extend_prefix_lens_cpu],
        counts=[count] * len(names) if decodes else [int(one) for one in batch.extend_seq_lens_cpu],
    )


def watch_retraction(watch: SchedulerWatch) -> None:
    """Requests that are put back while they decode, because slots run out."""
    from sglang.srt.managers.schedule_batch import ScheduleBatch

    plain = ScheduleBatch.retract_decode

    def retract_decode(batch: Any, *args: Any, **kwargs: Any) -> Any:
        made = plain(batch, *args, **kwargs)
        watch.counters["preemptions"] += len(made[0])
        return made

    ScheduleBatch.retract_decode = retract_decode


def _is_middle_chunk(request: Any) -> bool:
    """Whether the request's prefill goes on, so that what was sampled is thrown away."""
    later = getattr(request, "inflight_middle_chunks", 0)
    return bool(getattr(request, "is_chunked", later) > 0)


def watch_states(watch: SchedulerWatch, scheduler: Any) -> None:
    """What is kept for each prefix when all is done: attention's cache and recurrent states."""
    session = watch.device.session
    with session.own():
        for tokens, node in nodes_of(scheduler.tree_cache):
            values = {"tokens": hashlib.sha256(str(tokens).encode()).hexdigest()[:16]}
            values |= {key: digest_of(*parts) for key, parts in _kept(session, scheduler, node)}
            watch.on_host(f"cached prefix of {len(tokens)} tokens", **values)


def nodes_of(tree: Any) -> Iterator[tuple[tuple[int, ...], Any]]:
    """Nodes of the radix cache with the tokens of their prefix, in the order of these."""
    queue: list[tuple[tuple[int, ...], Any]] = [((), tree.root_node)]
    while queue:
        before, node = queue.pop()
        tokens = (*before, *(int(token) for token in node.key.token_ids))
        if tokens:
            yield tokens, node
        children = [(tokens, child) for child in node.children.values()]
        queue += sorted(children, key=lambda child: list(child[1].key.token_ids), reverse=True)


def _kept(session: Session, scheduler: Any, node: Any) -> Iterator[tuple[str, list[Tensor]]]:
    """Host tensors of what a node keeps."""
    cache = scheduler.token_to_kv_pool_allocator.get_kvcache()
    cache = getattr(cache, "full_kv_pool", cache)
    buffers = [*cache.k_buffer, *cache.v_buffer]
    value, slot = _values_of(node)
    if value is not None:
        rows = alias_of(session, value)
        yield "attention", [alias_of(session, buffer)[rows] for buffer in buffers]
    if slot is not None:
        states = scheduler.req_to_token_pool.mamba_pool.mamba_cache
        slots = alias_of(session, slot)
        parts = [*states.conv, states.temporal]
        yield "state", [alias_of(session, part)[:, slots] for part in parts]


def _values_of(node: Any) -> tuple[Tensor | None, Tensor | None]:
    """Where a node's keys and values are, and its recurrent state: of a tree of its own kind, or of
    one that has a component for each kind of memory.
    """
    if not hasattr(node, "component_data"):
        return node.value, getattr(node, "mamba_value", None)
    by_name = {kind.name: node.component(kind).value for kind in node.component_types}
    return by_name.get("FULL"), by_name.get("MAMBA")
