"""In bfloat16 the kernels load and store shorter numbers and calculate as in float32: with the same
(rounded) inputs they give the same results, rounded once. States and windows are float32 in both.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from kernel_batches import BLOCKS, decode_rows
from kernel_twins import DEVICE, FLOAT_TOLERANCE, TRITON, int32

# The last of the eight bits that bfloat16 has: the interpreter cuts off behind it, a GPU rounds.
ROUNDING = 2.0**-7
TOKENS, HEADS, SIZE, STATE, WIDTH, K = 7, 2, 4, 8, 4, 3
ROWS = decode_rows([4, 1, 2], [2, 1, 4], columns=1 + K)


class Drawn:
    """Random numbers that bfloat16 can hold, as tensors of a dtype."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._rng = np.random.default_rng(5)
        self._dtype = dtype

    def __call__(self, *shape: int) -> torch.Tensor:
        return self.kept(*shape).to(self._dtype)

    def kept(self, *shape: int) -> torch.Tensor:
        """Float32 in any case."""
        drawn = torch.from_numpy(self._rng.standard_normal(shape).astype(np.float32))
        return drawn.to(torch.bfloat16).to(torch.float32).to(DEVICE)


def on_device(x: Any) -> torch.Tensor:
    return torch.from_numpy(x).to(DEVICE)


def arguments(name: str, draw: Drawn) -> list[torch.Tensor]:
    """Of a launcher, in order; the last floats in the list may be written."""
    counts = [on_device(count) for count in ROWS.counts]
    table, token = on_device(ROWS.table), on_device(np.arange(TOKENS, dtype=np.int32) + 3)
    x, n = draw(TOKENS, HEADS, SIZE), draw(TOKENS, HEADS, STATE)
    heads, scalar = [draw(HEADS) for _ in range(3)], draw(TOKENS, HEADS)
    state = draw.kept(BLOCKS, HEADS, SIZE, STATE)
    window = draw.kept(BLOCKS, HEADS * SIZE, WIDTH - 1 + K)
    row = [table, *counts]
    flat = x.reshape(TOKENS, HEADS * SIZE)
    cache = draw(BLOCKS, 4, 2 * HEADS * SIZE)
    lens, prefix = on_device(int32(9, 6, 3)), on_device(int32(4))
    return {
        "norm": [flat],
        "head_norm": [x],
        "gate": [flat, draw(TOKENS, HEADS * SIZE)],
        "rotary": [x, token],
        "embedding": [token, draw(11, SIZE)],
        "argmax": [draw(3, 50)],
        "linear": [flat, draw(5, HEADS * SIZE)],
        "conv_update": [flat, draw(HEADS * SIZE, WIDTH), window, table[:, 0], *counts],
        "mamba2_update": [x, n[:, 0], n[:, 1], scalar, *heads, state, *row],
        "gated_delta_update": [n, n.flip(0), x, scalar, scalar, *heads[:2], state, *row],
        "cache_write": [draw(TOKENS, 2 * HEADS * SIZE), token + 4, cache],
        "paged_attention": [x, cache, table, counts[0], lens, token - 3],
        "cascade_attention": [x, cache, table, counts[0], lens, token - 3, prefix],
    }[name]


NAMES = [
    "norm",
    "head_norm",
    "gate",
    "rotary",
    "embedding",
    "argmax",
    "linear",
    "conv_update",
    "mamba2_update",
    "gated_delta_update",
    "cache_write",
    "paged_attention",
    "cascade_attention",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_gives_the_float32_result_rounded_once(name: str) -> None:
    short, full = (arguments(name, Drawn(dtype)) for dtype in (torch.bfloat16, torch.float32))
    found, expected = getattr(TRITON, name)(*short), getattr(TRITON, name)(*full)
    if expected is not None:
        assert found.dtype == (torch.bfloat16 if expected.is_floating_point() else torch.int32)
        assert_rounded(found, expected)
    for one, other in zip(short, full, strict=True):
        assert_rounded(one, other)


def assert_rounded(found: torch.Tensor, expected: torch.Tensor) -> None:
    """Equal up to a rounding to bfloat16; what is kept in float32 is not rounded at all."""
    relative = ROUNDING if found.dtype == torch.bfloat16 else FLOAT_TOLERANCE
    np.testing.assert_allclose(
        found.float().cpu().numpy(),
        expected.float().cpu().numpy(),
        rtol=relative,
        atol=FLOAT_TOLERANCE,
    )


def test_tokens_are_drawn_from_bfloat16_logits() -> None:
    """Greedy and heated rows alike: the logits are the same numbers in both."""
    sampled = []
    for dtype in (torch.bfloat16, torch.float32):
        logits = Drawn(dtype)(2, 1 + K, 50)
        index = on_device(np.arange(8, dtype=np.int32).reshape(2, 4))
        ids, places = (
            on_device(np.arange(8, dtype=np.int32)),
            on_device(np.arange(8, dtype=np.int32)),
        )
        heat = torch.tensor([0.0, 1.5], device=DEVICE)
        tokens = torch.full((2, 1 + K), 77, dtype=torch.int32, device=DEVICE)
        seed = on_device(int32(3, 4))
        TRITON.rejection_verify(logits, index, ids, places, heat, seed, tokens)
        sampled.append(tokens.cpu().numpy())
    np.testing.assert_array_equal(*sampled)
    assert (sampled[0][:, 0] >= 0).all()
