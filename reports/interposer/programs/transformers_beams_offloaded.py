"""transformers: beam search with a cache that is offloaded to the host layer by layer."""

from __future__ import annotations

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from racegate.interpose import observe

torch.set_num_threads(1)
torch.manual_seed(0)
config = LlamaConfig(
    hidden_size=32, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4,
    num_key_value_heads=2, vocab_size=64,
)  # fmt: skip
model = LlamaForCausalLM(config).to("cuda").eval()
tokens = model.generate(
    torch.tensor([[1, 2, 3, 4]], device="cuda"),
    max_new_tokens=6, num_beams=3, do_sample=False, cache_implementation="offloaded",
    eos_token_id=63, pad_token_id=0,
)  # fmt: skip
observe("tokens", tokens)
