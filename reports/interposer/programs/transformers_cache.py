"""transformers: a tiny Llama with an offloaded cache (`offloaded`, `offloaded_static`)."""

from __future__ import annotations

import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from racegate.interpose import observe

torch.set_num_threads(1)
torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=128,
    hidden_size=64,
    intermediate_size=64,
    num_hidden_layers=4,
    num_attention_heads=2,
    num_key_value_heads=2,
    max_position_embeddings=256,
    eos_token_id=None,
    bos_token_id=1,
    pad_token_id=0,
)
model = LlamaForCausalLM(config).eval().to("cuda")
prompt = torch.arange(3, 15, device="cuda")[None]
tokens = model.generate(
    prompt,
    attention_mask=torch.ones_like(prompt),
    max_new_tokens=6,
    do_sample=False,
    cache_implementation=sys.argv[1],
)
observe("tokens", tokens)
