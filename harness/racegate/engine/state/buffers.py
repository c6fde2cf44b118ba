"""The engine's memory: pinned inputs with their device twins, and device-only working buffers."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Protocol

import numpy as np
from numpy.typing import DTypeLike

from racegate.device.protocol import Device, DeviceBuffer, HostBuffer, Stream
from racegate.engine.state.sizes import Sizes


class Twin(Protocol):
    """Pinned host memory, and what the device has of it."""

    @property
    def cpu(self) -> HostBuffer:
        """Where the host writes."""
        ...

    @property
    def gpu(self) -> DeviceBuffer:
        """What kernels read."""
        ...

    def send(self, device: Device, stream: Stream, rows: int, *, step: int) -> None:
        """The host has written so many rows: kernels behind this on the stream read them."""
        ...


@dataclass(frozen=True, slots=True)
class UploadedTwin:
    """Pinned host memory and the device memory it is copied to."""

    cpu: HostBuffer
    gpu: DeviceBuffer

    def send(self, device: Device, stream: Stream, rows: int, *, step: int) -> None:
        """A copy, which reads the pinned memory when it runs."""
        device.upload(stream, self.gpu, self.cpu, step=step, rows=rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """Everything the host prepares for a step, one twin each. Shapes: `input_shapes`."""

    input_ids: Twin
    query_start: Twin
    computed_host: Twin
    accepted_host: Twin
    prev_positions: Twin
    computed_source: Twin
    count_source: Twin
    prev_scheduled: Twin
    prev_draft_lens: Twin
    draft_lens: Twin
    discarded: Twin
    backup_token: Twin
    is_decode: Twin
    logit_index: Twin
    request_index: Twin
    accept_target: Twin
    mrope_host: Twin
    common_prefix: Twin
    window_table: Twin
    anchor: Twin
    scheduled: Twin
    column: Twin
    migrate_source: Twin
    migrate_window: Twin
    migrate_target: Twin
    migrate_offset: Twin
    block_table: Twin
    state_table: Twin
    temperature: Twin
    seed: Twin


def input_shapes(sizes: Sizes) -> dict[str, tuple[tuple[int, ...], DTypeLike]]:
    """Shape and dtype of every input."""
    rows, width = sizes.rows, 1 + sizes.drafts
    special: dict[str, tuple[tuple[int, ...], DTypeLike]] = {
        "input_ids": ((sizes.tokens,), np.int32),
        "query_start": ((rows + 1,), np.int32),
        "logit_index": ((rows, width), np.int32),
        "window_table": ((rows, sizes.window), np.int32),
        "block_table": ((rows, sizes.columns), np.int32),
        "state_table": ((rows, sizes.state_columns), np.int32),
        "temperature": ((rows,), np.float32),
        "seed": ((rows,), np.uint32),
        "mrope_host": ((sizes.tokens, 3), np.int32),
        "common_prefix": ((1,), np.int32),
    }
    return {field.name: special.get(field.name, ((rows,), np.int32)) for field in fields(Inputs)}


def make_inputs(device: Device, stream: Stream, sizes: Sizes) -> Inputs:
    """Pinned inputs and their device twins."""
    twins = {
        name: UploadedTwin(
            device.host_buffer(f"{name}_cpu", shape, dtype),
            device.device_buffer(f"{name}_gpu", shape, dtype, stream=stream),
        )
        for name, (shape, dtype) in input_shapes(sizes).items()
    }
    return Inputs(**twins)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkBuffers:
    """Device-only buffers that live as long as the engine.

    computed, accepted, accepted_out: [R] int32, persistent across steps, in the row order of the
        last step
    positions, slot_mapping, shifted_ids: [T] int32; seq_lens, last_index: [R] int32
    mrope_positions: [T, 3] int32, in time, height and width
    hidden: [T, D]; draft_hidden: [R, D]
    boundary_table: [R, C] int32, the state table behind the forward pass
    copy_source, copy_window, copy_target, copy_offset: [R] int32, the copies of boundary states
    draft_positions, draft_slots, draft_seq_lens: [R] int32
    """

    computed: DeviceBuffer
    accepted: DeviceBuffer
    accepted_out: DeviceBuffer
    positions: DeviceBuffer
    mrope_positions: DeviceBuffer
    slot_mapping: DeviceBuffer
    shifted_ids: DeviceBuffer
    seq_lens: DeviceBuffer
    last_index: DeviceBuffer
    hidden: DeviceBuffer
    draft_hidden: DeviceBuffer
    boundary_table: DeviceBuffer
    copy_source: DeviceBuffer
    copy_window: DeviceBuffer
    copy_target: DeviceBuffer
    copy_offset: DeviceBuffer
    draft_positions: DeviceBuffer
    draft_slots: DeviceBuffer
    draft_seq_lens: DeviceBuffer


def make_work(device: Device, stream: Stream, sizes: Sizes) -> WorkBuffers:
    """Working buffers, from the stream's pool."""
    special: dict[str, tuple[tuple[int, ...], DTypeLike]] = {
        "positions": ((sizes.tokens,), np.int32),
        "mrope_positions": ((sizes.tokens, 3), np.int32),
        "slot_mapping": ((sizes.tokens,), np.int32),
        "shifted_ids": ((sizes.tokens,), np.int32),
        "hidden": ((sizes.tokens, sizes.hidden), sizes.quantity),
        "draft_hidden": ((sizes.rows, sizes.hidden), sizes.quantity),
        "boundary_table": ((sizes.rows, sizes.state_columns), np.int32),
    }
    buffers = {}
    for field in fields(WorkBuffers):
        shape, dtype = special.get(field.name, ((sizes.rows,), np.int32))
        name = f"{field.name}_gpu"
        buffers[field.name] = device.device_buffer(name, shape, dtype, stream=stream)
    return WorkBuffers(**buffers)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutputs:
    """Fresh device memory of one step, read by the next one, in the step's row order.

    next_token, valid_count: [R] int32; drafts: [R, K] int32
    draft_weights: [R, K, V] int32 or float32, where drafts are drawn
    """

    next_token: DeviceBuffer
    valid_count: DeviceBuffer
    drafts: DeviceBuffer
    draft_weights: DeviceBuffer | None


def make_outputs(device: Device, stream: Stream, sizes: Sizes) -> StepOutputs:
    """Memory for the outputs of one step, from the stream's pool."""
    rows, drafts, weights = sizes.rows, sizes.drafts, None
    if sizes.drawn_vocab:
        shape = (rows, drafts, sizes.drawn_vocab)
        weights = device.device_buffer(
            "draft_weights_gpu", shape, sizes.draft_weight, stream=stream
        )
    return StepOutputs(
        next_token=device.device_buffer("next_token_gpu", (rows,), np.int32, stream=stream),
        valid_count=device.device_buffer("valid_count_gpu", (rows,), np.int32, stream=stream),
        drafts=device.device_buffer("drafts_gpu", (rows, drafts), np.int32, stream=stream),
        draft_weights=weights,
    )


def no_outputs(device: Device, sizes: Sizes) -> StepOutputs:
    """Stands in for the previous step's outputs when there is no previous step; never written."""
    rows, drafts, weights = sizes.rows, sizes.drafts, None
    if sizes.drawn_vocab:
        zeros = np.zeros((rows, drafts, sizes.drawn_vocab), sizes.draft_weight)
        weights = device.constant("no_draft_weights", zeros)
    return StepOutputs(
        next_token=device.constant("no_next_token", np.zeros((rows,), np.int32)),
        valid_count=device.constant("no_valid_count", np.zeros((rows,), np.int32)),
        drafts=device.constant("no_drafts", np.zeros((rows, drafts), np.int32)),
        draft_weights=weights,
    )
