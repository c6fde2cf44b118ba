"""From the target hidden states to tokens, counts, drafts and their copies to the host
(docs/mechanism.md#step).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from racegate.device.protocol import DeviceBuffer, Event, HostBuffer, reads, writes
from racegate.engine.decode.parts import DecodeParts
from racegate.engine.state import edges
from racegate.engine.state.buffers import StepOutputs, make_outputs
from racegate.engine.state.lanes import Lane
from racegate.engine.state.plan import StepPlan
from racegate.engine.state.setup import Setup
from racegate.engine.state.view import StepView
from racegate.scenario.settings import DrafterKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A step in flight: its plan, its rows, and where its tokens will land."""

    plan: StepPlan
    rows: tuple[str, ...]
    sampled_gpu: DeviceBuffer
    sampled_cpu: HostBuffer
    landed: Event


class Sampling:
    """Next tokens and valid counts, and the way of tokens to the host."""

    def __init__(self, setup: Setup, parts: DecodeParts) -> None:
        device = setup.device
        self._setup = setup
        self._device = device
        self._compute = setup.compute
        self._output = device.stream(Lane.OUTPUT)
        self._parts = parts
        # The extract-hidden-states drafter counts discarded rows as well.
        is_extract = setup.scenario.engine.drafter is DrafterKind.EXTRACT_HIDDEN_STATES
        self._mask_discarded = 0 if is_extract else 1
        self._step_done = device.event("step_done")

    def fresh_tokens(self) -> DeviceBuffer:
        """[R, 1 + K] int32 for the tokens of a step."""
        shape = (self._setup.sizes.rows, 1 + self._setup.sizes.drafts)
        return self._device.device_buffer("sampled_gpu", shape, np.int32, stream=self._compute)

    def count_accepted(self, view: StepView, sampled: DeviceBuffer) -> None:
        """work.accepted = tokens emitted, in this step's row order. sampled: [R, 1 + K] int32"""
        rows = view.shape.rows
        self._setup.kernels.launch_kernel(
            "accepted_count",
            {
                "sampled": reads(sampled, rows),
                "accepted": writes(self._setup.work.accepted, rows, own=view.owners),
            },
            step=view.shape.step,
        )

    def next_tokens(self, view: StepView, sampled: DeviceBuffer) -> StepOutputs:
        """Next token and valid count of every row. sampled: [R, 1 + K] int32"""
        setup, rows = self._setup, view.shape.rows
        outputs = make_outputs(self._device, self._compute, setup.sizes)
        setup.kernels.launch_kernel(
            "next_token",
            {
                "sampled": reads(sampled, rows),
                "discarded": reads(setup.inputs.discarded.gpu, rows),
                "backup_token": reads(setup.inputs.backup_token.gpu, rows),
                "next_token": writes(outputs.next_token, rows, own=view.owners),
                "valid_count": writes(outputs.valid_count, rows, own=view.owners),
            },
            step=view.shape.step,
            vocab_size=setup.scenario.model.vocab_size,
            mask_discarded=self._mask_discarded,
        )
        return outputs

    def release(self, outputs: StepOutputs, *, step: int) -> None:
        """Gives a step's outputs back: no other stream reads them any more."""
        self._device.free(outputs.valid_count, step=step)
        self._device.free(outputs.next_token, step=step)
        self._device.free(outputs.drafts, step=step)
        if outputs.draft_weights is not None:
            self._device.free(outputs.draft_weights, step=step)

    def send(self, plan: StepPlan, view: StepView, sampled: DeviceBuffer) -> Frame:
        """The step's tokens start their way to the host, into fresh pinned memory."""
        step = view.shape.step
        shape = (self._setup.sizes.rows, 1 + self._setup.sizes.drafts)
        target = self._device.host_buffer("sampled_cpu", shape, np.int32)
        landed = self._device.event(f"output@{step}")
        self._device.record(self._compute, self._step_done)
        self._device.wait_stream(
            self._output, self._step_done, edges.OUTPUT_COPY_AFTER_STEP, step=step
        )
        self._device.download(
            self._output, target, sampled, "sampled", step=step, rows=view.shape.rows
        )
        self._device.record(self._output, landed)
        self._parts.tokens_sent(self._device, sampled, step)
        return Frame(
            plan=plan, rows=view.rows, sampled_gpu=sampled, sampled_cpu=target, landed=landed
        )

    def receive(self, frame: Frame, *, step: int) -> dict[str, list[int]]:
        """The tokens of a frame by request; waits for them and frees their memory."""
        self._device.wait_host(frame.landed, edges.OUTPUT_LANDED, step=step)
        owners = [(name, frame.plan.step) for name in frame.rows]
        sampled = frame.sampled_cpu.read(len(frame.rows), expect=owners)
        self._device.free_host(frame.sampled_cpu)
        self._parts.tokens_received(self._device, frame.sampled_gpu, step)
        return {
            name: [token for token in row if token != -1]
            for name, row in zip(frame.rows, sampled.tolist(), strict=True)
        }
