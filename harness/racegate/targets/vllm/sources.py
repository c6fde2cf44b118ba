"""The sources of vLLM that its runners are made of: what mutants of a release are drawn from."""

from __future__ import annotations

from racegate.targets.vllm.wire import ModelRunner

_SCHEDULING = ("v1/core/sched/scheduler.py", "v1/core/sched/async_scheduler.py")
_ATTENTION = ("v1/attention/backends/gdn_attn.py", "v1/attention/backends/triton_attn.py")
_FIRST = (
    "v1/worker/gpu_model_runner.py",
    "v1/worker/gpu_input_batch.py",
    "v1/worker/block_table.py",
    "v1/worker/mamba_utils.py",
    "v1/sample/rejection_sampler.py",
    "v1/sample/sampler.py",
    "v1/spec_decode/llm_base_proposer.py",
    "v1/spec_decode/utils.py",
)
_SECOND = tuple(
    f"v1/worker/gpu/{name}.py"
    for name in (
        "model_runner", "input_batch", "block_table", "states", "async_utils", "buffer_utils",
        "attn_utils", "structured_outputs", "model_states/mamba_hybrid", "sample/sampler",
        "sample/states", "sample/penalties", "spec_decode/speculator",
        "spec_decode/rejection_sampler", "spec_decode/rejection_sampler_utils",
    )
)  # fmt: skip
# By runner, below the folder of the package; both share scheduler and metadata.
MUTATED = {
    ModelRunner.V1: (*_FIRST, *_ATTENTION, *_SCHEDULING),
    ModelRunner.V2: (*_SECOND, *_ATTENTION, *_SCHEDULING),
}
