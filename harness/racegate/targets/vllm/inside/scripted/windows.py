"""A first layer of attention that looks back over a window: earlier blocks are given back."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from racegate.targets.vllm.wire import LayerMode

WINDOW_TOKENS = 32
_MODEL = "vllm.model_executor.models.qwen3_next"
_FIRST = "model.layers.0."  # not the drafter's


def give_windows(layers: LayerMode) -> None:
    """If they are asked for: before the model is made, whose own configuration knows none."""
    if layers is not LayerMode.WINDOWS:
        return
    module: Any = import_module(_MODEL)
    plain = module.Attention

    def attention(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("prefix", "").startswith(_FIRST):
            kwargs["per_layer_sliding_window"] = WINDOW_TOKENS
        return plain(*args, **kwargs)

    module.Attention = attention
