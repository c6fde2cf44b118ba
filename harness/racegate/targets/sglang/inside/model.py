"""The tiny random models that are served, with weights that make every state tell in the tokens."""

from __future__ import annotations

from typing import Any

import torch

from racegate.targets.sglang.wire import VOCAB, ModelKind

SEED = 1
EMBEDDED = 4.0  # of a model that drafts are made for
OTHERS = 0.1  # what else decides of a draft
_SHARED = ("lm_head", "model.embed_tokens")  # by the drafter with the model

_COMMON: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "hidden_act": "silu",
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "rope_theta": 10000.0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "torch_dtype": "float32",
}
_DENSE = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
_HYBRID = {
    "architectures": ["Qwen3NextForCausalLM"],
    "model_type": "qwen3_next",
    "partial_rotary_factor": 0.5,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
    "linear_num_key_heads": 1,
    "linear_num_value_heads": 2,
    "decoder_sparse_step": 1,
    "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 64,
    "num_experts_per_tok": 1,
    "num_experts": 0,
    "norm_topk_prob": True,
    "mlp_only_layers": [],
    "full_attention_interval": 2,
    "layer_types": ["linear_attention", "full_attention"],
}


def config(model: ModelKind) -> dict[str, Any]:
    """The model's `config.json`."""
    return _COMMON | (_DENSE if model is ModelKind.DENSE else _HYBRID)


def fill_weights(module: torch.nn.Module, *, embedded: float = 1.0) -> None:
    """Random weights of the size that keeps activations near 1, so that each layer matters; slow
    decay, so that a recurrent state remembers its whole prefix. embedded: size of what a token
    itself is known by, to what the layers make of it
    """
    generator = torch.Generator().manual_seed(SEED)
    for name, weight in sorted(module.named_parameters()):
        values = torch.randn(weight.shape, generator=generator)
        if name.endswith("A_log"):
            values = torch.full(weight.shape, -4.0)
        elif weight.dim() == 1:
            values = values * 0.1 + (0.0 if "dt_bias" in name or "bias" in name else 1.0)
        elif "embed_tokens" in name:
            values = values * embedded
        else:
            values = values / weight.shape[-1] ** 0.5
        weight.data.copy_(values.to(weight.dtype))


def fill_drafter(module: torch.nn.Module) -> None:
    """Weights of a drafter that is right about as often as it is wrong: what it says of a token is
    mostly what the token itself decides, as it is in a model whose tokens are `EMBEDDED`.
    """
    fill_weights(module)
    for name, weight in module.named_parameters():
        if name == "fc.weight":  # [H, 2 H]: of the token, and of the state behind the one before
            own = torch.eye(len(weight))
            weight.data.copy_(torch.cat((own, OTHERS * own), dim=1).to(weight.dtype))
        elif weight.dim() > 1 and not name.startswith(_SHARED):
            weight.data.mul_(OTHERS)
