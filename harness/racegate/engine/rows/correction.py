"""What the rows' host side does with the device's results: it corrects its mirrors, and keeps its
hands off pinned inputs that uploads still read (docs/mechanism.md#correction).
"""

from __future__ import annotations

import numpy as np

from racegate.engine.decode.valid_counts import ValidCounts
from racegate.engine.rows.accepted_counts import AcceptedCounts
from racegate.engine.rows.batch_rows import BatchRows
from racegate.engine.rows.parts import RowParts
from racegate.engine.rows.stages import Correction
from racegate.engine.state import edges
from racegate.engine.state.buffers import StepOutputs
from racegate.engine.state.plan import StepPlan
from racegate.engine.state.setup import Setup
from racegate.engine.state.view import PrevStep, StepView


class UploadGuard:
    """Pinned inputs are there once: the next step's are written when this one's are uploaded."""

    def __init__(self, setup: Setup, parts: RowParts) -> None:
        self._device = setup.device
        self._compute = setup.compute
        self._parts = parts
        self._prepared = setup.device.event("input_preparation")

    def wait(self, plan: StepPlan) -> None:
        """Until what the host is about to rewrite has been copied."""
        if plan.dummy_rows:
            self._parts.dummy_guard(self._device, self._prepared, plan.step)
        else:
            self._device.wait_host(self._prepared, edges.INPUT_PREP_GUARD, step=plan.step)

    def staged(self, step: int) -> None:
        """The uploads are issued."""
        self._device.record(self._compute, self._prepared)

    def staged_idle(self) -> None:
        """An idle step's are."""
        self._parts.dummy_staged(self._device, self._compute, self._prepared)

    def issued(self) -> None:
        """Nothing behind the uploads reads pinned inputs."""


class HostCorrection(Correction):
    """Deferred correction: the host's mirrors become exact, from the previous step's counts."""

    def __init__(self, setup: Setup, count_path: AcceptedCounts, batch: BatchRows) -> None:
        self._device = setup.device
        self._count_path = count_path
        self._valid_counts = ValidCounts(setup)
        self._batch = batch

    def send(self, view: StepView, outputs: StepOutputs) -> None:
        self._valid_counts.send(view, outputs)

    def correct(self, step: int, prev: PrevStep) -> None:
        if prev.is_none:
            return
        with self._device.action("correct", step=step):
            prev_accepted = self._count_path.wait_for_accepted(step, prev)
            # A row without drafts takes count 1, its one token. Rows that had drafts say how many
            # were accepted; where no row had any, there is nothing to wait for.
            prev_valid_count = np.ones(len(prev.requests), np.int32)
            if (prev.draft_lens > 0).any():
                prev_valid_count = self._valid_counts.wait(step, prev)
            if prev_accepted is None:
                prev_accepted = prev_valid_count
            self._batch.correct(prev, prev_valid_count, prev_accepted)

    def release(self, step: int) -> None:
        self._valid_counts.release(step)
