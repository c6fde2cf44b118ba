"""Connectors that keep blocks of the KV cache in the host's memory, of which the scheduler and the
worker have a half each: how they are asked for, and what stands in for a thread that copies.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from racegate.targets.common.inside.watch import Watch
from racegate.targets.vllm.wire import ConnectorKind

HOST_BYTES = 1 << 20  # a dozen blocks: it is soon full
_NAMES = {
    ConnectorKind.SIMPLE: "SimpleCPUOffloadConnector",
    ConnectorKind.OFFLOADING: "OffloadingConnector",
    ConnectorKind.FAILING: "SimpleCPUOffloadConnector",
}
_COPIES = "vllm.v1.simple_kv_offload.copy_backend"


def transfer_config(kind: ConnectorKind) -> Any:
    """What vLLM is started with; None for no connector. Raises RuntimeError if the release has
    none of the kind.
    """
    if kind is ConnectorKind.NONE:
        return None
    from vllm.config import KVTransferConfig
    from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory

    name = _NAMES[kind]
    if name not in KVConnectorFactory._registry:
        raise RuntimeError(f"this release has no {name}")
    if kind is not ConnectorKind.OFFLOADING:
        copy_at_once()
    policy = {"kv_load_failure_policy": "fail"} if kind is ConnectorKind.FAILING else {}
    return KVTransferConfig(
        kv_connector=name,
        kv_role="kv_both",
        kv_connector_extra_config={"cpu_bytes_to_use": HOST_BYTES},
        **policy,
    )


class HandedJobs:
    """In place of the queue of a thread that copies, and of the thread: neither outlives a fork,
    and when the thread wakes up is not the schedule's. Each job is done when it is handed over.
    """

    def __init__(self) -> None:
        self._jobs: deque[Any] = deque()
        self._loop: Callable[[], None] | None = None

    def serve(self, loop: Callable[[], None]) -> None:
        """From now on this is called with each job in the queue; it ends with a job None."""
        self._loop = loop

    def put(self, job: Any) -> None:
        if job is not None and self._loop is not None:
            self._jobs.extend((job, None))
            self._loop()

    def get(self) -> Any:
        return self._jobs.popleft()


class HandedWorker:
    """A thread that serves the first of its arguments, such a queue."""

    def __init__(self, *, target: Callable[..., None], args: tuple[Any, ...], **_: Any) -> None:
        self._target, self._args = target, args

    def start(self) -> None:
        queue: HandedJobs = self._args[0]
        queue.serve(lambda: self._target(*self._args))

    def join(self, timeout: float | None = None) -> None:
        """Nothing is left to be done."""


def copy_at_once() -> None:
    """Before a connector is made whose copies are made by a thread."""
    module: Any = import_module(_COPIES)
    module.queue = SimpleNamespace(SimpleQueue=HandedJobs)
    module.threading = SimpleNamespace(Thread=HandedWorker)


def watch_transfers(watch: Watch, scheduled: Any) -> None:
    """What the scheduler wants moved in a step: counts pairs of blocks, or jobs."""
    metadata = getattr(scheduled, "kv_connector_metadata", None)
    if metadata is None:
        return
    saves, loads = _moves(metadata)
    watch.counters["saves"] += len(saves)
    watch.counters["loads"] += len(loads)
    if saves or loads:
        watch.inner_on_host("transfers", saves=saves, loads=loads)


def fail_loads(
    watch: Watch, scheduler: Any, kind: ConnectorKind, cut: Callable[[str], object]
) -> None:
    """Each load that has ended is told to have failed, if that is asked for. cut: called with the
    identity of one that ends by it and is delivered nothing. Raises RuntimeError if the release
    hears of no failed load.
    """
    if kind is not ConnectorKind.FAILING:
        return
    from vllm.v1.outputs import KVConnectorOutput

    if "failed_recving" not in KVConnectorOutput.__dataclass_fields__:
        raise RuntimeError("this release's connectors do not say that a request's load failed")
    plain = scheduler.update_from_output

    def update(scheduled: Any, output: Any, *args: Any, **kwargs: Any) -> Any:
        told: Any = output.kv_connector_output
        for one in () if told is None else tuple(told.finished_recving or ()):
            told.failed_recving = {*(told.failed_recving or ()), one}
            watch.counters["lost_loads"] += 1
            cut(one)
        return plain(scheduled, output, *args, **kwargs)

    scheduler.update_from_output = update


def _moves(metadata: Any) -> tuple[list[list[int]], list[list[int]]]:
    """Pairs of a block of the device and one of the host, that are saved and that are loaded."""
    if hasattr(metadata, "store_gpu_blocks"):
        saves = zip(metadata.store_gpu_blocks, metadata.store_cpu_blocks, strict=True)
        loads = zip(metadata.load_gpu_blocks, metadata.load_cpu_blocks, strict=True)
        return [list(one) for one in saves], [list(one) for one in loads]
    return (
        [_of_job(job.src_spec, job.dst_spec) for job in metadata.store_jobs.values()],
        [_of_job(job.dst_spec, job.src_spec) for job in metadata.load_jobs.values()],
    )


def _of_job(device: Any, host: Any) -> list[int]:
    """Blocks of the device, and then those of the host."""
    return [*map(int, device.block_ids), *map(int, host.block_ids)]
