"""What a captured forward pass is bound to, and how a batch smaller than the graph is padded.
Mechanism section 10.

A graph has a fixed number of rows and tokens and cannot ask how many of them are real. Whatever it
reads behind the batch must therefore name nothing, and be written in every step: what stood there
is another step's, and its blocks may belong to a request that waits outside the batch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from racegate.device.masks import prefix_mask
from racegate.device.protocol import Device, DeviceBuffer, Stream, Use, writes
from racegate.engine.blocks import NULL_BLOCK
from racegate.engine.buffers import Inputs, Twin, Work
from racegate.engine.model import BatchShape
from racegate.engine.preparation import StepView
from racegate_kernels.backend import Backend
from racegate_kernels.numerics import Array

# The row masks that captured footprints name; see Model.forward.
BLOCKS, STATE_BLOCKS = "blocks", "state_blocks"


def is_uniform_decode(view: StepView, *, width: int) -> bool:
    """Whether every row decodes with all its drafts. width: 1 + k.

    A prompt chunk can have 1 + k tokens too: the phase decides, not the shape.
    """
    return bool(np.all(view.is_decode)) and bool(np.all(view.tokens == width))


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The buffers that the forward pass works on; those of a graph are bound when it is
    captured.
    """

    inputs: Inputs
    work: Work
    window_table: DeviceBuffer


class Padding:
    """Pad rows have no tokens, null blocks and count 1, and pad tokens are token 0.

    bound: what the engine prepares for every step
    sizes: rows of the captured graphs; width: 1 + k, the tokens of a row
    """

    def __init__(
        self, device: Device, stream: Stream, bound: Bound, *, sizes: tuple[int, ...], width: int
    ) -> None:
        self._device = device
        self._stream = stream
        self._engine_bound = bound
        self._most = max(sizes)
        self._width = width
        # A graph cannot look at the flags: that every row decodes is part of what is captured.
        ones = device.constant("is_decode_captured", np.ones(self._most, np.int32))
        self._is_decode = Twin(bound.inputs.is_decode.cpu, ones)

    @property
    def bound(self) -> Bound:
        """What the graphs are bound to."""
        inputs = replace(self._engine_bound.inputs, is_decode=self._is_decode)
        return replace(self._engine_bound, inputs=inputs)

    def warm_up(self) -> None:
        """Before a capture the buffers hold the largest batch there is a graph for, of dummies."""
        rows, tokens = (0, self._most), (0, self._most * self._width)
        self._write(-1, rows, tokens, stride=self._width)

    def refresh(self, view: StepView, size: int) -> None:
        """Pads a step's batch to `size` rows."""
        if size > view.shape.rows:
            tokens = (view.shape.tokens, size * self._width)
            self._write(view.shape.step, (view.shape.rows, size), tokens)

    def masks(self, shape: BatchShape) -> dict[str, int]:
        """The rows of the pools that a step's replay touches: pad rows touch none."""
        assert not isinstance(shape.blocks, str) and not isinstance(shape.state_blocks, str)
        return {BLOCKS: shape.blocks, STATE_BLOCKS: shape.state_blocks}

    def _write(
        self, step: int, rows: tuple[int, int], tokens: tuple[int, int], *, stride: int = 0
    ) -> None:
        """Pads rows and tokens from the first to behind the last. stride: tokens of a pad row."""
        bound = self._engine_bound
        inputs, work = bound.inputs, bound.work
        (row, row_end), (token, token_end) = rows, tokens
        self._device.launch(
            self._stream,
            pad,
            "pad",
            step=step,
            uses=(
                _writes_span(inputs.query_start.gpu, row + (row > 0), row_end + 1),
                _writes_span(inputs.input_ids.gpu, token, token_end),
                _writes_span(inputs.block_table.gpu, row, row_end),
                _writes_span(bound.window_table, row, row_end),
                _writes_span(work.accepted, row, row_end),
                _writes_span(work.computed, row, row_end),
            ),
            row=row,
            row_end=row_end,
            token=token,
            token_end=token_end,
            stride=stride,
        )


def _writes_span(buffer: DeviceBuffer, first: int, end: int) -> Use:
    return writes(buffer, mask=prefix_mask(end) ^ prefix_mask(first))


def pad(
    k: Backend,
    query_start: Array,  # [R_max + 1] int32, written behind `row`
    input_ids: Array,  # [T_max] int32, written from `token` on
    block_table: Array,  # [R_max, M] int32, written from `row` on
    window_table: Array,  # [R_max, ...] int32, the same
    accepted: Array,  # [R_max] int32, the same
    computed: Array,  # [R_max] int32, the same
    *,
    row: int,
    row_end: int,
    token: int,
    token_end: int,
    stride: int,
) -> None:
    """Rows `row` to `row_end` with `stride` tokens each behind token `token`, and nothing else."""
    if row == 0:
        query_start[0] = token
    for index in range(row, row_end):
        query_start[index + 1] = token + stride * (index + 1 - row)
    input_ids[token:token_end] = 0
    block_table[row:row_end] = NULL_BLOCK
    window_table[row:row_end] = NULL_BLOCK
    accepted[row:row_end] = 1
    computed[row:row_end] = 0
