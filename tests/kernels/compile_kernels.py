"""Compiles every kernel for an H200, as its launchers specialise it; prints what was compiled.

Needs no GPU: the launchers get tensors without memory, and the launch itself is left out. So it
also shows that no launcher looks at a tensor's values. Run as a program, without the interpreter.

    python compile_kernels.py int32|float32|bfloat16
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction

from racegate_kernels.backend import triton_backend

Launch = tuple[str, list[Any], dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The dimensions of a model and of a step."""

    rows: int
    tokens: int
    drafts: int
    table: int
    heads: int
    head_size: int
    state_size: int
    width: int
    vocab: int


SIZES = [
    # A Mamba2 layer of production.
    Sizes(
        rows=256,
        tokens=1024,
        drafts=3,
        table=600,
        heads=128,
        head_size=64,
        state_size=128,
        width=4,
        vocab=131_072,
    ),
    # Odd sizes, and ones, which Triton compiles as constants.
    Sizes(
        rows=1,
        tokens=1,
        drafts=1,
        table=1,
        heads=1,
        head_size=6,
        state_size=5,
        width=2,
        vocab=100,
    ),
]
BLOCKS, BLOCK_SIZE, INTERVAL, TRUTH = 2048, 16, 512, 2048


class _Target:
    """What the compiler asks a driver for."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return device


def tensor(*shape: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def model_launches(n: Sizes, dtype: torch.dtype) -> Iterator[Launch]:
    """The kernels that touch model quantities."""

    def model(*shape: int) -> torch.Tensor:
        return tensor(*shape, dtype=dtype)

    def projected(*shape: int) -> torch.Tensor:
        size = int(torch.Size(shape).numel())
        return model(n.tokens, 3 * size + 7)[:, 3 : 3 + size].view(n.tokens, *shape)

    row, token, query_start = tensor(n.rows), tensor(n.tokens), tensor(n.rows + 1)
    counts, columns = [query_start, row, row, row], n.drafts + 1
    inner, hidden, heads = n.heads * n.head_size, n.head_size * 42, [model(n.heads)] * 3
    x = projected(n.heads, n.head_size)
    yield "embedding", [token, model(n.vocab, hidden)], {}
    yield "norm", [model(n.tokens, hidden)], {}
    yield "head_norm", [model(n.tokens, n.heads, n.head_size)], {}
    yield "linear", [model(n.tokens, hidden), model(inner, hidden)], {}
    yield "gate", [model(n.tokens, inner), projected(inner)], {}
    yield "attention_gate", [model(n.tokens, inner)], {}
    yield "rotary", [x, token], {}
    pairs = n.head_size // 2
    section = (pairs - pairs // 3 * 2, pairs // 3, pairs // 3)
    yield "mrope", [x, tensor(n.tokens, 3)], {"section": section}
    yield "argmax", [model(n.rows, n.vocab)], {}
    # What is kept from step to step stays in float32 where the rest is in bfloat16.
    kept = torch.float32 if dtype is torch.bfloat16 else dtype
    window = tensor(BLOCKS, inner, n.width - 1 + n.drafts, dtype=kept)
    yield "conv_update", [projected(inner), model(inner, n.width), window, row, *counts], {}
    by_token, counted = tensor(n.rows, n.table + 1), [query_start, row]
    behind = tensor(BLOCKS, inner, n.width - 1, dtype=kept)
    convolved = [projected(inner), model(inner, n.width), behind, by_token, *counted]
    yield "conv_by_token", convolved, {}
    table = tensor(n.rows, n.table + columns)[:, n.table :]
    state = tensor(BLOCKS, n.heads, n.head_size, n.state_size, dtype=kept)
    b, dt = projected(n.state_size), projected(n.heads)
    yield "mamba2_update", [x, b, b, dt, *heads, state, table, *counts], {}
    q = projected(n.heads, n.state_size)
    yield "gated_delta_update", [q, q, x, dt, dt, *heads[:2], state, table, *counts], {}
    cache = model(BLOCKS, BLOCK_SIZE, 2 * inner)
    yield "cache_write", [model(n.tokens, 2 * inner), token, cache], {}
    paged = [x, cache, tensor(n.rows, n.table), query_start, row, token]
    yield "paged_attention", paged, {}
    yield "cascade_attention", [*paged, tensor(1)], {}
    logits, sampled = model(n.rows, columns, n.vocab), tensor(n.rows, columns)
    temperature = tensor(n.rows, dtype=torch.float32)
    yield "rejection_verify", [logits, sampled, token, token, temperature, row, sampled], {}
    weights = model(n.rows, n.drafts, n.vocab)
    if n.vocab <= 4096 and dtype is not torch.bfloat16:
        verified = [logits, sampled, token, token, temperature, row, weights, row, sampled]
        yield "verify_drawn", verified, {}
        drafted = [model(n.rows, n.vocab), temperature, row, row, tensor(n.rows, n.drafts), weights]
        yield "draw_drafts", drafted, {"column": 0}
    yield "mask_logits", [logits, tensor(n.rows, columns, triton.cdiv(n.vocab, 32))], {}
    yield "zero_blocks", [state, row], {}
    yield "migrate_states", [state, row, row], {}
    yield "migrate_windows", [window, row, row, row], {"width": n.width}


def weighted_launches(n: Sizes, dtype: torch.dtype) -> Iterator[Launch]:
    """With weights, biases and heads that turn in part: kernels that are compiled otherwise."""

    def model(*shape: int) -> torch.Tensor:
        return tensor(*shape, dtype=dtype)

    row, inner = tensor(n.rows), n.heads * n.head_size
    yield "norm", [model(n.tokens, inner), model(inner)], {"groups": n.heads}
    x = model(n.tokens, n.heads, n.head_size)
    yield "rotary", [x, tensor(n.tokens)], {"width": n.head_size // 4}
    window = model(BLOCKS, inner, n.width - 1 + n.drafts)
    counts = [tensor(n.rows + 1), row, row, row]
    convolved = [model(n.tokens, inner), model(inner, n.width), window, row, *counts, model(inner)]
    yield "conv_update", convolved, {}


def index_launches(n: Sizes) -> Iterator[Launch]:
    """The kernels of counts, positions, tokens and tables."""
    row, token, query_start = tensor(n.rows), tensor(n.tokens), tensor(n.rows + 1)
    table, sampled = tensor(n.rows, n.table), tensor(n.rows, n.drafts + 1)
    drafts, truth = tensor(n.rows, n.drafts), tensor(n.rows, TRUTH)
    yield "positions", [row, query_start, token, row], {}
    yield "slot_mapping", [token, query_start, table, token], {"block_size": BLOCK_SIZE}
    yield "correct_computed", [row] * 6, {}
    yield "select_accepted", [row] * 4, {}
    places = tensor(n.tokens, 3)
    yield "correct_mrope", [places, row, row, query_start, places], {}
    yield "scatter_inputs", [token, query_start, row, row, row, drafts], {}
    yield "trim_drafts", [drafts, row, row, query_start, sampled, token], {}
    yield "accepted_count", [sampled, row], {}
    yield "accepted_count_first_hole", [sampled, row], {}
    options = {"vocab_size": n.vocab, "mask_discarded": 1}
    yield "next_token", [sampled, row, row, row, row], options
    yield "draft_inputs", [token, query_start, row, row, row, token, row], {}
    cache, rows = tensor(BLOCKS, BLOCK_SIZE, 1), [row, row, table, row, row]
    yield "ngram_draft", [token, row, table, cache, drafts], {}
    args = [token, token, token, *rows, truth, truth, cache, drafts]
    yield "scripted_draft", args, {"vocab_size": n.vocab}
    yield "fill", [row], {"value": 1}
    rows = {"row": 1, "row_end": n.rows}
    tokens = {"token": 1, "token_end": n.tokens, "stride": 2}
    yield "pad_tokens", [query_start, token], rows | tokens
    yield "pad_rows", [table, table, row, row], rows
    yield "boundary_plan", [*[row] * 6, table, *[row] * 5], {"interval": INTERVAL}
    planned = [row, query_start, row, table, row, row, sampled, *[row] * 4]
    yield "column_plan", planned, {"interval": INTERVAL}
    yield "token_blocks", [row, query_start, row, row, row, table, table], {"interval": INTERVAL}
    yield "gather_rows", [table, row, table], {}
    yield "scatter_rows", [table, row, table], {}


def main(dtype: str) -> None:
    triton.runtime.driver.set_active(_Target())
    run, compiled = JITFunction.run, {}

    def compile_only(
        self: JITFunction, *args: Any, grid: Any, warmup: bool, **options: Any
    ) -> None:
        kernel = run(self, *args, grid=grid, warmup=True, **options)
        compiled[f"{self.fn.__module__}.{self.fn.__name__}"] = list(kernel.asm)

    JITFunction.run = compile_only
    backend, launched = triton_backend(), set()
    for sizes in SIZES:
        launches = list(model_launches(sizes, getattr(torch, dtype)))
        if dtype == "float32" and sizes.heads > 1:
            launches += weighted_launches(sizes, torch.float32)
        if dtype == "int32":
            launches += index_launches(sizes)
        for name, args, options in launches:
            getattr(backend, name)(*args, **options)
            launched.add(name)
    print(json.dumps({"launched": sorted(launched), "compiled": compiled}))


if __name__ == "__main__":
    main(sys.argv[1])
