"""Probe: what the engine tells an observer at its step boundaries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from racegate.device.protocol import DeviceBuffer
from racegate.engine.model.model import Model
from racegate.engine.scheduling.scheduler import Scheduler
from racegate.engine.state.buffers import Inputs, StepOutputs, WorkBuffers
from racegate.engine.state.plan import StepPlan
from racegate.engine.state.view import PrevStep, StepView


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbedMemory:
    """What there is to look at.

    draft_cache: [B, S, E], the drafter's, if it keeps one
    window_table: [R, 1 + K] int32, where only the device knows the running windows; in cache mode
        all [R, 1 + N], the blocks of all tokens and of the state that a row starts from
    """

    inputs: Inputs
    work: WorkBuffers
    model: Model
    draft_cache: DeviceBuffer | None
    window_table: DeviceBuffer | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """How a step was prepared. prev: what it looked back at; row_of: the batch.

    tables: [R, C] int32 each, the host's block tables by row, where it has them
    slots: of each row, where there are slots
    backup, targets: [R] int32, backup tokens and accept targets
    """

    prev: PrevStep
    row_of: Mapping[str, int]
    tables: Callable[[], Mapping[str, np.ndarray]]
    slots: tuple[int, ...]
    backup: np.ndarray
    targets: np.ndarray


class Probe:
    """Called by the engine at the step boundaries. This one observes nothing: the bare engine."""

    def attach(self, memory: ProbedMemory) -> None:
        """Once, before the first step."""

    def scheduled(self, plan: StepPlan, scheduler: Scheduler, *, in_flight: int) -> None:
        """A step is planned. in_flight: frames, this one included."""

    def prepared(self, view: StepView, preparation: Preparation) -> None:
        """Its inputs are staged."""

    def zeroed(self, view: StepView) -> None:
        """Its new blocks are zeroed; only if the engine does that."""

    def inputs(self, view: StepView) -> None:
        """The forward pass comes next."""

    def forwarded(self, view: StepView) -> None:
        """The forward pass is issued."""

    def sampled(self, view: StepView, outputs: StepOutputs, sampled: DeviceBuffer) -> None:
        """Verification and drafter are issued. sampled: [R, 1 + K] int32"""

    def processed(self, plan: StepPlan, scheduler: Scheduler) -> None:
        """The scheduler has taken a step's output."""
