"""What was started: whether it does what it was asked for."""

from __future__ import annotations

from typing import Any

from racegate.targets.vllm.cell import Cell
from racegate.targets.vllm.wire import ModelRunner, PositionMode, SchedulingMode


def runner_of(engine: Any) -> Any:
    """The model runner of a started engine."""
    worker = engine.engine_core.engine_core.model_executor.driver_worker
    return getattr(worker, "worker", worker).model_runner


def state_block_of(scheduler: Any) -> int:
    """How many tokens a block of recurrent states is for; 0 if there is none."""
    groups = scheduler.kv_cache_config.kv_cache_groups
    sizes = [
        group.kv_cache_spec.block_size
        for group in groups
        if type(group.kv_cache_spec).__name__ == "MambaSpec"
    ]
    return int(max(sizes, default=0))


def check_started(engine: Any, asked: Cell) -> None:
    """A release may know less than it is asked for and go on without: raises RuntimeError then."""
    is_second = type(runner_of(engine)).__module__.startswith("vllm.v1.worker.gpu.")
    found = ModelRunner.V2 if is_second else ModelRunner.V1
    if found is not asked.runner:
        raise RuntimeError(f"this release runs the model with its runner {found.upper()}")
    config = engine.vllm_config
    is_async = asked.scheduling is SchedulingMode.ASYNC
    if bool(config.scheduler_config.async_scheduling) != is_async:
        how = "asynchronously" if is_async else "after it knows the last output"
        raise RuntimeError(f"this release does not schedule speculative decoding {how}")
    has_prefixes = bool(config.cache_config.enable_prefix_caching)
    known = getattr(config.cache_config, "mamba_cache_mode", "all" if has_prefixes else "none")
    has_dimensions = bool(getattr(config.model_config, "uses_mrope", False))
    if has_dimensions != (asked.positions is PositionMode.MROPE):
        raise RuntimeError(
            "this release's positions of the model have not as many numbers as asked"
        )
    if known != asked.mode and state_block_of(engine.engine_core.engine_core.scheduler):
        raise RuntimeError(f"this release keeps recurrent states in mode {known!r}")
