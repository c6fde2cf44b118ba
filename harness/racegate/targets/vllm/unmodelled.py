"""Arguments of vLLM's engine that ask for what is not judged here, each with the reason.

A run with one of these would say nothing of what was asked for, however it ended.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

_RANKS = "one rank is run: the ranks of an engine and what they send each other are not"
_POOLING = "pooling is not judged: the scripted model says tokens, and has no pooler"
_MODEL = (
    "the model is scripted, with layers of the gated delta rule, Mamba2 and attention (--layers): "
    "others are not judged"
)
_ENCODER = (
    "processors of pictures and other encoders are not judged: images have positions, or a hollow "
    "encoder (--images encoded)"
)
# By name: the values that ask for nothing, and why others are refused.
_REFUSED: dict[str, tuple[tuple[object, ...], str]] = {
    "enable_lora": (
        (False,),
        "adapters are asked for by --adapters lora, which gives requests some",
    ),
    "enable_sleep_mode": (
        (False,),
        "memory that a sleeping engine gives up is not judged; pauses that keep requests and clear "
        "caches are, where a scenario has them",
    ),
    "runner": (("auto", "generate"), _POOLING),
    "task": (("auto", "generate"), _POOLING),
    "convert": (("auto", "none"), _POOLING),
    "pooler_config": ((None,), _POOLING),
    "override_pooler_config": ((None,), _POOLING),
    "model": ((), _MODEL),
    "hf_overrides": (({}, None), _MODEL),
    "limit_mm_per_prompt": (({}, None), _ENCODER),
    "mm_encoder_only": ((False,), _ENCODER),
    "enable_mm_embeds": ((False,), _ENCODER),
    "ec_transfer_config": ((None,), _ENCODER),
    "tensor_parallel_size": ((1,), _RANKS),
    "pipeline_parallel_size": ((1,), _RANKS),
    "data_parallel_size": ((1,), _RANKS),
    "prefill_context_parallel_size": ((1,), _RANKS),
    "decode_context_parallel_size": ((1,), _RANKS),
}


def refusal_of(arguments: Sequence[str]) -> str:
    """Why the first of some arguments is not judged; empty if all are. arguments: each NAME=JSON"""
    for name, _, text in (argument.partition("=") for argument in arguments):
        plain, why = _REFUSED.get(name, ((), ""))
        if why and not any(text == json.dumps(value) for value in plain):
            return f"--engine-arg {name}: {why}"
    return ""
