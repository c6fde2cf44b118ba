"""Where the weights of drawn drafts stand between the step that draws them and the next one, which
verifies the drafts against them (docs/mechanism.md#drafts).

An engine part. Weights are results in flight: the correct ones stay in the row order of the step
that drew them, in memory of that step alone, and are reached through the previous rows.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from racegate.device.protocol import HostBuffer, Use, reads
from racegate.engine.state.buffers import StepOutputs
from racegate.engine.state.setup import Setup
from racegate.engine.state.view import PrevStep, StepView, expected_owners


class DraftWeights:
    """One path of weights: of drafts that are not drawn, which have none.

    row_tables: pinned tables that must move with the rows
    """

    row_tables: tuple[HostBuffer, ...] = ()

    def stage(self, view: StepView, prev: PrevStep) -> None:
        """The host prepares a step; its rows have moved."""

    def given(self, view: StepView, prev: PrevStep, outputs: StepOutputs) -> Mapping[str, Use]:
        """What the step's drafts are verified against, by parameter of the kernel; nothing if they
        were not drawn. outputs: those of the previous step

        draft_weights: [R_max, K, V] int32 or float32; draft_source: [R] int32, the row that a
            row's weights stand in
        """
        return {}

    def drawn(self, view: StepView, outputs: StepOutputs) -> None:
        """The step's own drafts and their weights are issued."""


class DeviceDraftWeights(DraftWeights):
    """Weights never leave the device, and never move."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup

    def given(self, view: StepView, prev: PrevStep, outputs: StepOutputs) -> Mapping[str, Use]:
        """Those of the previous step, by previous row."""
        count_drawn(self._setup, view)
        assert outputs.draft_weights is not None
        drafted = np.where(view.draft_lens > 0, view.prev_positions, -1)
        owners = expected_owners(view, prev, drafted)
        return {
            "draft_weights": reads(outputs.draft_weights, expect=owners),
            "draft_source": reads(self._setup.inputs.prev_positions.gpu, view.shape.rows),
        }


def drawn_drafts(setup: Setup, view: StepView) -> np.ndarray:
    """[R]: drafts that a step verifies against weights; those of greedy requests are not drawn."""
    greedy = {request.name for request in setup.scenario.requests if request.temperature == 0.0}
    return np.where([name in greedy for name in view.rows], 0, view.draft_lens)


def count_drawn(setup: Setup, view: StepView) -> None:
    """Counts what a step verifies against weights, and whose rows moved."""
    drawn = drawn_drafts(setup, view)
    moved = (drawn > 0) & (view.prev_positions != np.arange(view.shape.rows))
    setup.counters.add("drawn_drafts", int(drawn.sum()))
    setup.counters.add("draft_weight_moves", int(moved.sum()))
