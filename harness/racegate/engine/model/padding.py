"""What a captured forward pass is bound to, and how a batch smaller than the graph is padded
(docs/mechanism.md#graphs).

A graph has a fixed number of rows and tokens and cannot ask how many of them are real. Whatever it
reads behind the batch must therefore name nothing, and be written in every step: what stood there
is another step's, and its blocks may belong to a request that waits outside the batch.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from racegate.device.masks import prefix_mask
from racegate.device.protocol import DeviceBuffer, Use, reads, writes
from racegate.engine.model.bound import BoundBuffers
from racegate.engine.state.buffers import UploadedTwin
from racegate.engine.state.setup import Setup
from racegate.engine.state.view import BatchShape, StepView
from racegate_kernels.backend import Backend
from racegate_kernels.numerics import Array

# The row masks that captured footprints name.
BLOCKS, STATE_BLOCKS = "blocks", "state_blocks"
WRITTEN, STATE_WRITTEN = "written blocks", "written state_blocks"


def is_uniform_decode(view: StepView, *, width: int) -> bool:
    """Whether every row decodes with all its drafts. width: 1 + K.

    A prompt chunk can have 1 + K tokens too: the phase decides, not the shape.
    """
    return bool(np.all(view.is_decode)) and bool(np.all(view.tokens == width))


def fits(shape: BatchShape, size: int, *, width: int) -> bool:
    """Whether there is room for the rows of a batch, and for its tokens. width: 1 + K

    A prompt chunk has many tokens in a row, a row with few drafts fewer than 1 + K: neither count
    tells the other.
    """
    return shape.rows <= size and shape.tokens <= size * width


class Padding:
    """Pad rows have no tokens, null blocks and count 1; pad tokens are token 0. Their positions,
    lengths and slots need no padding: the kernels that make those write the whole buffer.

    live: the buffers that the engine prepares for every step
    sizes: rows of the graphs; rows_most: of the largest; width: 1 + K, the tokens of a row
    """

    def __init__(self, setup: Setup, live: BoundBuffers, *, sizes: tuple[int, ...]) -> None:
        engine = setup.scenario.engine
        self.setup = setup
        self.live = live
        self.engine = engine
        self.rows_most = max(sizes)
        self.width = 1 + engine.draft_len_max
        self._is_decode = UploadedTwin(live.inputs.is_decode.cpu, self._make_flags())

    def _make_flags(self) -> DeviceBuffer:
        """[R] int32. That every row decodes is part of what is captured: nobody writes them."""
        ones = np.ones(self.rows_most, np.int32)
        return self.setup.device.constant("is_decode_captured", ones)

    @property
    def bound(self) -> BoundBuffers:
        """What the graphs are bound to."""
        return replace(self.live, inputs=replace(self.live.inputs, is_decode=self._is_decode))

    def warm_up(self) -> None:
        """Before a capture the buffers hold the largest batch there is a graph for, of dummies."""
        self.pad_tokens(-1, (0, self.rows_most), (0, self.rows_most * self.width), self.width)
        self.pad_rows(-1, (0, self.rows_most))

    def refresh(self, view: StepView, size: int) -> None:
        """Pads a step's batch to `size` rows."""
        shape = view.shape
        if size > shape.rows:
            self.pad_tokens(shape.step, (shape.rows, size), (shape.tokens, size * self.width), 0)
            self.pad_rows(shape.step, (shape.rows, size))

    def masks(self, shape: BatchShape) -> dict[str, int]:
        """The rows of the pools that a step's replay touches: pad rows touch none."""
        masks = {
            BLOCKS: shape.blocks,
            STATE_BLOCKS: shape.state_blocks,
            WRITTEN: shape.written,
            STATE_WRITTEN: shape.state_written,
        }
        return {name: mask for name, mask in masks.items() if not isinstance(mask, str)}

    def pad_tokens(
        self, step: int, rows: tuple[int, int], tokens: tuple[int, int], stride: int
    ) -> None:
        """Pad rows from the first to behind the last begin at the first pad token, `stride` apart;
        pad tokens are token 0.
        """
        (row, row_end), (token, token_end) = rows, tokens
        inputs = self.live.inputs
        self.setup.kernels.launch_kernel(
            "pad_tokens",
            {
                "query_start": _writes_span(inputs.query_start.gpu, row, row_end + 1),
                "input_ids": _writes_span(inputs.input_ids.gpu, token, token_end),
            },
            step=step,
            row=row,
            row_end=row_end,
            token=token,
            token_end=token_end,
            stride=stride,
        )

    def pad_rows(self, step: int, rows: tuple[int, int]) -> None:
        """Pad rows from the first to behind the last have null blocks and count 1."""
        row, row_end = rows
        live = self.live
        buffers = {
            "block_table": live.inputs.block_table.gpu,
            "window_table": live.window_table,
            "accepted": live.work.accepted,
            "computed": live.work.computed,
        }
        uses = {name: _writes_span(buffer, row, row_end) for name, buffer in buffers.items()}
        self.setup.kernels.launch_kernel("pad_rows", uses, step=step, row=row, row_end=row_end)


class MixedPadding(Padding):
    """Batches of prompt chunks and decode rows: the flags are copied to where the graph reads them,
    and a batch of as many rows as the graph may have fewer tokens.
    """

    def _make_flags(self) -> DeviceBuffer:
        """Memory of their own: the step's may stand elsewhere in every step."""
        return self.setup.device.device_buffer(
            "is_decode_captured", (self.rows_most,), np.int32, stream=self.setup.compute
        )

    def warm_up(self) -> None:
        """The flags, too."""
        super().warm_up()
        flags = writes(self._is_decode.gpu, self.rows_most)
        self.setup.kernels.launch_kernel("fill", {"x": flags}, step=-1, value=1)

    def refresh(self, view: StepView, size: int) -> None:
        """Pads a step's batch to `size` rows and their tokens."""
        shape = view.shape
        super().refresh(view, size)
        if size <= shape.rows and shape.tokens < size * self.width:
            self.pad_tokens(shape.step, 2 * (shape.rows,), (shape.tokens, size * self.width), 0)
        self._copy_flags(shape.step, min(size, shape.rows), size)

    def _copy_flags(self, step: int, rows: int, size: int) -> None:
        self.setup.kernels.launch_kernel(
            _copy_flags,
            {
                "is_decode": reads(self.live.inputs.is_decode.gpu, rows),
                "captured": writes(self._is_decode.gpu, size),
            },
            name="copy_flags",
            step=step,
        )


def _copy_flags(
    kernels: Backend,
    is_decode: Array,  # [R] int32
    captured: Array,  # [size] int32, written
) -> None:
    """Pad rows count as decode rows."""
    rows = len(is_decode)
    captured[:rows] = is_decode
    kernels.fill(captured[rows:], value=1)


def _writes_span(buffer: DeviceBuffer, first: int, end: int) -> Use:
    return writes(buffer, mask=prefix_mask(end) ^ prefix_mask(first))
