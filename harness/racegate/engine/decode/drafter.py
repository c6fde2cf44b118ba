"""Drafter: what proposes the tokens that the next step verifies. DEFINITION section 4.

The batch keeps its shape: rejected tokens stay in as padding (docs/mechanism.md#drafts).
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from racegate.device.protocol import Device, DeviceBuffer, Stream, reads, writes
from racegate.engine.state.buffers import Inputs, StepOutputs, Work
from racegate.engine.state.plan import PlanEntry
from racegate.engine.state.view import BatchShape
from racegate.history.trace import Owner


class Drafter(Protocol):
    """cache: the drafter's own cache [B, S, E], or None if it keeps none."""

    @property
    def cache(self) -> DeviceBuffer | None: ...

    def targets(self, entries: list[PlanEntry]) -> np.ndarray:
        """[R] int32: the accepted count each row's drafts aim at (1 where that means nothing)."""
        ...

    def propose(
        self,
        shape: BatchShape,
        inputs: Inputs,
        work: Work,
        sampled: DeviceBuffer,
        outputs: StepOutputs,
        *,
        owners: tuple[Owner, ...],
    ) -> None:
        """Writes outputs.drafts [R, K]."""
        ...


class NoDrafter:
    """Proposes nothing (draft_len_max 0)."""

    cache = None

    def targets(self, entries: list[PlanEntry]) -> np.ndarray:
        return np.ones(len(entries), np.int32)

    def propose(
        self,
        shape: BatchShape,
        inputs: Inputs,
        work: Work,
        sampled: DeviceBuffer,
        outputs: StepOutputs,
        *,
        owners: tuple[Owner, ...],
    ) -> None:
        pass


def shift_inputs(
    device: Device,
    stream: Stream,
    shape: BatchShape,
    inputs: Inputs,
    work: Work,
    outputs: StepOutputs,
) -> None:
    """Ids shifted left by one, and each row's last input that stays."""
    device.launch(
        stream,
        lambda k, *arrays: k.draft_inputs(*arrays),
        "draft_inputs",
        step=shape.step,
        uses=(
            reads(inputs.input_ids.gpu, shape.tokens),
            reads(inputs.query_start.gpu, shape.rows + 1),
            reads(inputs.draft_lens.gpu, shape.rows),
            reads(outputs.valid_count, shape.rows),
            reads(outputs.next_token, shape.rows),
            writes(work.shifted_ids, shape.tokens),
            writes(work.last_index, shape.rows),
        ),
    )
