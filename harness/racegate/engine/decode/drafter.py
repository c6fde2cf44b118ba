"""Drafter: what proposes the tokens that the next step verifies. DEFINITION section 4.

The batch keeps its shape: rejected tokens stay in as padding (docs/mechanism.md#drafts).
"""

from __future__ import annotations

import numpy as np

from racegate.device.protocol import DeviceBuffer, reads, writes
from racegate.engine.state.buffers import StepOutputs
from racegate.engine.state.plan import PlanEntry
from racegate.engine.state.setup import Setup
from racegate.engine.state.view import StepView


class Drafter:
    """What proposes drafts. This one proposes nothing (draft_len_max 0).

    cache: the drafter's own cache [B, S, E], or None if it keeps none
    """

    cache: DeviceBuffer | None = None

    def targets(self, entries: list[PlanEntry]) -> np.ndarray:
        """[R] int32: the accepted count each row's drafts aim at (1 where that means nothing)."""
        return no_targets(entries)

    def propose(self, view: StepView, sampled: DeviceBuffer, outputs: StepOutputs) -> None:
        """Writes outputs.drafts [R, K]. sampled: [R, 1 + K] int32, the step's tokens."""


def no_targets(entries: list[PlanEntry]) -> np.ndarray:
    """[R] int32: 1, where drafts aim at nothing."""
    return np.ones(len(entries), np.int32)


def shift_inputs(setup: Setup, view: StepView, outputs: StepOutputs) -> None:
    """Ids shifted left by one, and each row's last input that stays."""
    inputs, work, shape = setup.inputs, setup.work, view.shape
    setup.kernels.launch_kernel(
        "draft_inputs",
        {
            "input_ids": reads(inputs.input_ids.gpu, shape.tokens),
            "query_start": reads(inputs.query_start.gpu, shape.rows + 1),
            "draft_lens": reads(inputs.draft_lens.gpu, shape.rows),
            "valid_count": reads(outputs.valid_count, shape.rows),
            "next_token": reads(outputs.next_token, shape.rows),
            "shifted_ids": writes(work.shifted_ids, shape.tokens),
            "last_index": writes(work.last_index, shape.rows),
        },
        step=shape.step,
    )
