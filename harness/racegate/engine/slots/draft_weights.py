"""Weights of drawn drafts, in slots: like the drafts they stand where their request is."""

from __future__ import annotations

from collections.abc import Mapping

from racegate.device.protocol import Use, reads
from racegate.engine.decode.draft_weights import DraftWeights, drawn_drafts
from racegate.engine.slots.memory import SlotMemory
from racegate.engine.state.buffers import StepOutputs
from racegate.engine.state.setup import Setup
from racegate.engine.state.view import PrevStep, StepView


class SlotDraftWeights(DraftWeights):
    """They go to the slot behind the drafter, and are verified against from there."""

    def __init__(self, setup: Setup, memory: SlotMemory) -> None:
        self._setup = setup
        self._memory = memory
        sizes = setup.sizes
        shape = (1 + sizes.rows, sizes.drafts, sizes.drawn_vocab)
        self._weights = setup.device.device_buffer(
            "slot_draft_weights", shape, sizes.draft_weight, stream=setup.compute
        )

    def given(self, view: StepView, prev: PrevStep, outputs: StepOutputs) -> Mapping[str, Use]:
        """Those in the rows' slots."""
        self._setup.counters.add("drawn_drafts", int(drawn_drafts(self._setup, view).sum()))
        drafted = (view.draft_lens > 0).tolist()
        return {
            "draft_weights": self._memory.in_slots(self._weights, view, expect=drafted),
            "draft_source": reads(self._memory.token_slots.gpu, view.shape.rows),
        }

    def drawn(self, view: StepView, outputs: StepOutputs) -> None:
        """They are kept."""
        assert outputs.draft_weights is not None
        self._memory.keep(view, self._weights, outputs.draft_weights, name="draft_weights")
