"""The inputs of a step in slots: the host says which slot each row is of, the device lays out the
rest.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from racegate.device.protocol import DeviceBuffer, writes
from racegate.engine.rows.accepted_counts import CountAnswer
from racegate.engine.rows.input_prep import InputPrep, Sources, TokenSource
from racegate.engine.rows.parts import RowParts
from racegate.engine.rows.preparation import logit_index
from racegate.engine.slots.memory import NULL_SLOT, SlotMemory
from racegate.engine.state.buffers import StepOutputs
from racegate.engine.state.setup import Setup
from racegate.engine.state.view import PrevStep, StepView, host_input_ids

_GATHERED = ("block_table", "state_table", "temperature", "seed")


class SlotPrep(InputPrep):
    """Writes to the step's place in the pool, and gathers what stands in slots."""

    def __init__(self, setup: Setup, parts: RowParts, memory: SlotMemory) -> None:
        super().__init__(setup, parts)
        self._memory = memory

    def stage(
        self, view: StepView, prev: PrevStep, answer: CountAnswer, *, backup: np.ndarray
    ) -> Sources:
        """Host side. Nothing is taken from the previous step: it has left it in slots."""
        inputs = self._setup.inputs
        self._put(view, inputs.input_ids, host_input_ids(view))
        self._put(view, inputs.query_start, view.query_start)
        self._put(view, inputs.draft_lens, view.draft_lens)
        self._put(view, inputs.discarded, view.discarded)
        self._put(view, inputs.backup_token, backup)
        self._put(view, inputs.is_decode, view.is_decode)
        index = logit_index(view, drafts_max=self._setup.sizes.drafts)
        self._put(view, inputs.logit_index, index)
        if self._setup.scenario.model.has_mrope:
            pairs = zip(view.entries, view.states, strict=True)
            computed = np.array([self._parts.host_computed(*pair) for pair in pairs], np.int32)
            self._put(view, inputs.computed_host, computed)
            self.stage_coordinates(view, computed)
        self._stage_slots(view, self._memory.slots)
        return _nothing(view)

    def _stage_slots(self, view: StepView, slots: Sequence[int]) -> None:
        """Which slot each row is of; only those that decode go on from a token there."""
        index = np.array(slots, np.int32)
        goes_on = view.is_decode if view.rows else 0 * view.is_decode
        self._put(view, self._memory.slot_of, index)
        self._put(view, self._memory.token_slots, np.where(goes_on, index, -1).astype(np.int32))

    def stage_drafting(self, view: StepView, prev: PrevStep, *, targets: np.ndarray) -> None:
        """Host side of the drafter. targets: [R] int32, accept targets"""
        self.stage_targets(view, targets)

    def send_tables(self, view: StepView) -> None:
        """Tables of requests stand in slots."""

    def stage_padding(self, view: StepView) -> None:
        """Host side of an idle step: its rows stand in the null slot. Running windows, which the
        device plans for requests only, name nothing.
        """
        inputs, zeros = self._setup.inputs, np.zeros(view.shape.rows, np.int32)
        self._put(view, inputs.input_ids, zeros)
        self._put(view, inputs.query_start, view.query_start)
        self._put(view, inputs.draft_lens, zeros)
        self._put(view, inputs.is_decode, view.is_decode)
        if self._setup.scenario.model.has_mrope:
            self._put(view, inputs.computed_host, zeros)
            self._put(view, inputs.mrope_host, np.zeros((view.shape.rows, 3), np.int32))
        self._stage_slots(view, (NULL_SLOT,) * view.shape.rows)
        self._setup.kernels.launch_kernel(
            "fill",
            {"x": writes(inputs.window_table.gpu)},
            name="clear_windows",
            step=view.shape.step,
            value=0,
        )

    def derive(
        self, view: StepView, prev: PrevStep, outputs: StepOutputs, sources: Sources
    ) -> None:
        """Device side: staged writes, the rows of the slots, positions, and what was sampled."""
        memory, inputs, work = self._memory, self._setup.inputs, self._setup.work
        memory.apply(view.shape.step)
        for name in _GATHERED:
            target: DeviceBuffer = getattr(inputs, name).gpu
            memory.gather(view, name, target, expect=False)
        memory.gather(view, "computed", work.computed, expect=True)
        memory.gather(view, "accepted", work.accepted, expect=True)
        self.place(view)
        goes_on = (view.is_decode != 0)[: len(view.rows)]  # none in an idle step
        self.fill_in(
            view,
            TokenSource(
                rows=memory.token_slots.gpu,
                next_token=memory.in_slots(memory.tables.last_token, view, expect=goes_on.tolist()),
                drafts=memory.in_slots(
                    memory.tables.drafts,
                    view,
                    expect=(goes_on & (view.draft_lens > 0)[: len(view.rows)]).tolist(),
                ),
            ),
        )


def _nothing(view: StepView) -> Sources:
    none = np.full(view.shape.rows, -1, np.int32)
    return Sources(computed=none, count=none)
