"""Adapters: weights of low rank that some requests are run with besides the model's.

They are loaded by the release while requests run, from files that are written before it starts.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from racegate.targets.vllm.inside.scripted.model import config
from racegate.targets.vllm.wire import ADAPTERS, AdapterMode, adapter_of

_RANK = 8
_LAYER = "base_model.model.model.layers.1.self_attn.o_proj"  # attention, in every model


def asked_adapters(adapters: AdapterMode, folder: Path) -> dict[str, Any]:
    """Of vLLM's EngineArgs. folder: the model's, where the files of adapters are written"""
    if adapters is AdapterMode.NONE:
        return {}
    for number in range(1, ADAPTERS + 1):
        _write(_folder_of(folder, number), number)
    return {"enable_lora": True, "max_loras": ADAPTERS, "max_lora_rank": _RANK}


def with_adapter(adapters: AdapterMode, index: int, folder: str) -> dict[str, Any]:
    """What a request is added with. index: in the scenario; folder: the model's"""
    number = adapter_of(index)
    if adapters is AdapterMode.NONE or not number:
        return {}
    from vllm.lora.request import LoRARequest

    path = str(_folder_of(Path(folder), number))
    return {"lora_request": LoRARequest(f"adapter {number}", number, path)}


def _folder_of(folder: Path, number: int) -> Path:
    return folder / f"adapter-{number}"


def _write(folder: Path, number: int) -> None:
    from safetensors.torch import save_file

    model = config()
    width = model["num_attention_heads"] * model["head_dim"]
    folder.mkdir()
    said = {"peft_type": "LORA", "r": _RANK, "lora_alpha": _RANK, "target_modules": ["o_proj"]}
    (folder / "adapter_config.json").write_text(json.dumps(said))
    weights = {
        f"{_LAYER}.lora_A.weight": torch.full((_RANK, width), float(number)),
        f"{_LAYER}.lora_B.weight": torch.full((model["hidden_size"], _RANK), float(number)),
    }
    save_file(weights, folder / "adapter_model.safetensors")
