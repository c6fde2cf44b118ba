"""transformers: generation by continuous batching, asynchronous or not, with graphs or without."""

from __future__ import annotations

import sys

import torch
from transformers import (
    ContinuousBatchingConfig,
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
)

from racegate.interpose import observe

torch.set_num_threads(1)
torch.manual_seed(0)
config = LlamaConfig(
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    vocab_size=128,
)
model = LlamaForCausalLM(config).to("cuda").eval()
model.set_attn_implementation("paged|sdpa")
batching = ContinuousBatchingConfig(
    use_async_batching=sys.argv[1] == "async",
    use_cuda_graph=sys.argv[2] == "graph",
    num_blocks=32,
    max_batch_tokens=64,
)
generation = GenerationConfig(max_new_tokens=6, do_sample=False, eos_token_id=-1, pad_token_id=0)
outputs = model.generate_batch(
    [[1, 2, 3, 4], [5, 6, 7], [9, 8]],
    generation_config=generation,
    continuous_batching_config=batching,
)
observe("tokens", sorted(tuple(one.generated_tokens) for one in outputs.values()))
