"""The sources of SGLang that its overlap scheduler is made of: what mutants of a release are drawn
from. Releases before 0.5.23 have some of them elsewhere.
"""

from __future__ import annotations

MUTATED = (
    "srt/managers/scheduler.py",
    "srt/managers/schedule_batch.py",
    "srt/managers/schedule_policy.py",
    "srt/managers/overlap_utils.py",
    "srt/managers/tp_worker.py",
    "srt/managers/utils.py",
    "srt/managers/scheduler_components/batch_result_processor.py",
    "srt/mem_cache/allocation.py",
    "srt/mem_cache/allocator/token.py",
    "srt/mem_cache/common.py",
    "srt/mem_cache/memory_pool.py",
    "srt/mem_cache/unified_radix_cache.py",
    "srt/model_executor/forward_batch_info.py",
    "srt/speculative/eagle_worker_v2.py",
    "srt/speculative/eagle_worker_common.py",
    "srt/speculative/eagle_utils.py",
    "srt/speculative/eagle_info.py",
    "srt/speculative/spec_utils.py",
    "srt/layers/attention/triton_backend.py",
    "srt/layers/attention/hybrid_linear_attn_backend.py",
)
