"""The way of valid counts to a host that corrects what it took for granted."""

from __future__ import annotations

import numpy as np

from racegate.engine.state import edges
from racegate.engine.state.buffers import StepOutputs
from racegate.engine.state.lanes import Lane
from racegate.engine.state.setup import Setup
from racegate.engine.state.view import PrevStep, StepView


class ValidCounts:
    """A copy stream, and pinned memory that they land in."""

    def __init__(self, setup: Setup) -> None:
        device = setup.device
        self._device = device
        self._compute = setup.compute
        self._counts = device.stream(Lane.COUNTS)
        self._ready = device.event("next_token_ready")
        self._landed = device.event("valid_count")
        self._cpu = device.host_buffer("valid_count_cpu", (setup.sizes.rows,), np.int32)

    def send(self, view: StepView, outputs: StepOutputs) -> None:
        """The valid counts start their way to the host."""
        step = view.shape.step
        self._device.record(self._compute, self._ready)
        self._device.wait_stream(
            self._counts, self._ready, edges.COUNT_COPY_AFTER_KERNEL, step=step
        )
        self._device.download(
            self._counts,
            self._cpu,
            outputs.valid_count,
            "valid_count",
            step=step,
            rows=view.shape.rows,
        )
        self._device.record(self._counts, self._landed)

    def wait(self, step: int, prev: PrevStep) -> np.ndarray:
        """[R] int32: the previous step's valid counts, in its row order; waits for them."""
        self._device.wait_host(self._landed, edges.VALID_COUNT_LANDED, step=step)
        return self._cpu.read(len(prev.requests), expect=prev.owners)

    def release(self, step: int) -> None:
        """The last step's valid counts are about to be given back."""
        self._device.wait_stream(self._compute, self._landed, edges.COUNT_RELEASE, step=step)
