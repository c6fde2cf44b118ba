"""Stand-ins for what a machine without a GPU cannot load: compiled kernels and their packages.

No file of SGLang is changed. What is judged (event loop, scheduler, radix caches, pools, batches,
the attention backends with their Triton kernels) is the release's own. Where SGLang has a kernel
and a plain form of the same, the plain form runs.
"""

from __future__ import annotations

import builtins
import importlib
import inspect
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from types import ModuleType
from typing import Any

import torch

from racegate.targets.common.inside.listener import EngineListener
from racegate.targets.common.inside.triton import answer_for_triton, note_settings
from racegate.targets.sglang.inside.chains import take_plain_chains
from racegate.targets.sglang.inside.missing import OPERATORS, MissingPackages, Refuse

SETTINGS = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "DO_NOT_TRACK": "1",
    "SGLANG_DISABLE_OUTLINES_DISK_CACHE": "1",
    "SGLANG_MAMBA_CONV_DTYPE": "float32",
    "SGLANG_ENABLE_JIT_DEEPGEMM": "0",
}


def prepare(refuse: Refuse, listener: EngineListener) -> None:
    """Before SGLang is imported."""
    os.environ.update(SETTINGS)
    torch.set_num_threads(1)
    MissingPackages(refuse).install()
    _pass_over_shapes()
    answer_for_triton()
    note_settings(listener)


def _pass_over_shapes() -> None:
    """SGLang tells torch the shapes of compiled operators, which are not there."""
    import torch.library as library

    plain = library.register_fake

    def register_fake(op: Any, func: Any = None, /, **options: Any) -> Any:
        if isinstance(op, str) and op.partition("::")[0] in OPERATORS:
            return (lambda function: function) if func is None else func
        return plain(op, func, **options)

    library.register_fake = register_fake


def fit_engine() -> None:
    """After SGLang is imported, before a scheduler is made."""
    _take_plain_forms()
    take_plain_chains()
    _make_experts_dense()


def _take_plain_forms() -> None:
    from sglang.srt.layers.utils.multi_platform import MultiPlatformOp

    MultiPlatformOp.dispatch_forward = lambda op: op.forward_native
    with suppress(ImportError):  # releases before it choose by that alone
        fused: Any = importlib.import_module("sglang.kernels.fused_op")
        fused.BaseFusedOp._resolve_forward_method = lambda op: op.forward_native
    overlap: Any = importlib.import_module("sglang.srt.managers.overlap_utils")
    plain = getattr(overlap, "_resolve_future_token_ids_native", None)
    if plain is not None:
        overlap._resolve_future_token_ids = plain
    pool: Any = importlib.import_module("sglang.srt.mem_cache.memory_pool")
    if hasattr(pool, "can_use_store_cache"):
        pool.can_use_store_cache = lambda *args: False
    batch: Any = importlib.import_module("sglang.srt.model_executor.forward_batch_info")
    native = getattr(batch, "_clamp_position_native", None)
    if native is not None:
        batch.clamp_position = native


def _make_experts_dense() -> None:
    """One dense layer in the place of mixed experts, whose kernels are compiled."""
    import sglang.srt.models.qwen3_next as models
    from sglang.srt.eplb.expert_location import ExpertLocationMetadata

    class Dense(torch.nn.Module):  # type: ignore[misc]
        """tanh(x W)."""

        num_fused_shared_experts = 0

        def __init__(self, layer_id: int = 0, config: Any = None, *args: Any, **kwargs: Any):
            super().__init__()
            size = config.hidden_size
            self.weight = torch.nn.Parameter(torch.empty(size, size), requires_grad=False)

        def forward(self, hidden: Any, *args: Any, **kwargs: Any) -> Any:
            return torch.tanh(hidden @ self.weight)

    models.Qwen2MoeSparseMoeBlock = Dense
    ExpertLocationMetadata.init_trivial = staticmethod(lambda *args, **kwargs: None)


def fit_kernels() -> None:
    """After all of SGLang is imported: its Triton kernels as the interpreter can run them."""
    import triton.language as tl
    import triton.language.math as math

    builtin = {
        id(value): (module, name)
        for module in (math, tl)
        for name, value in vars(module).items()
        if getattr(value, "__triton_builtin__", False)
    }
    for name, module in list(sys.modules.items()):
        if name.startswith("sglang.") and module is not None:
            _fit_module(module, builtin)
    if "sglang.srt.layers.attention.linear.kernels.gdn_triton" in sys.modules:
        _allow_float32()


def _allow_float32() -> None:
    """The entry to the chunked gated delta rule refuses float32, in which the models here are; its
    kernels compute it.
    """
    import sglang.srt.layers.attention.linear.kernels.gdn_triton as kernels

    chunk: Any = sys.modules[kernels.chunk_gated_delta_rule.__module__]
    forward = inspect.signature(chunk.ChunkGatedDeltaRuleFunction.forward)
    _, *named = forward.parameters.values()  # the first is torch's context
    usual = {one.name: None if one.default is one.empty else one.default for one in named}

    def chunk_gated_delta_rule(**given: Any) -> Any:
        given.setdefault("scale", given["k"].shape[-1] ** -0.5)
        values = [given.pop(name, default) for name, default in usual.items()]
        given.pop("head_first", None)
        assert not given, f"not known: {', '.join(given)}"
        output, states = chunk.ChunkGatedDeltaRuleFunction.apply(*values)
        return output, None, states

    kernels.chunk_gated_delta_rule = chunk_gated_delta_rule


def _fit_module(module: ModuleType, builtin: dict[int, tuple[ModuleType, str]]) -> None:
    """The interpreter exchanges the language's own names, not those that a module took from it."""
    for name, value in list(vars(module).items()):
        if name == "is_arch_support_pdl":
            setattr(module, name, lambda *args, **kwargs: False)
        elif callable(value) and id(value) in builtin:
            setattr(module, name, _looked_up_late(*builtin[id(value)]))
    if module.__name__.endswith(".chunk_delta_h"):
        vars(module)["range"] = _interpreted_range


def _looked_up_late(module: ModuleType, name: str) -> Any:
    return lambda *args, **kwargs: getattr(module, name)(*args, **kwargs)


def _interpreted_range(*bounds: Any) -> Iterator[Any]:
    from triton.runtime import interpreter

    for index in builtins.range(*(int(bound) for bound in bounds)):
        yield interpreter._implicit_cvt(index)
