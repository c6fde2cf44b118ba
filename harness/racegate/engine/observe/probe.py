"""Probe: what the engine tells an observer at its step boundaries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from racegate.device.protocol import DeviceBuffer
from racegate.engine.model.model import Model
from racegate.engine.scheduling.scheduler import Scheduler
from racegate.engine.state.buffers import Inputs, StepOutputs, Work
from racegate.engine.state.plan import StepPlan
from racegate.engine.state.view import PrevStep, StepView


class Probe(Protocol):
    """Called by the engine at the step boundaries."""

    def scheduled(self, plan: StepPlan, scheduler: Scheduler, *, in_flight: int) -> None: ...
    def prepared(
        self,
        view: StepView,
        row_of: Mapping[str, int],
        inputs: Inputs,
        prev: PrevStep | None,
        *,
        backup: np.ndarray,
        targets: np.ndarray,
    ) -> None: ...
    def zeroed(self, view: StepView, model: Model, draft_cache: DeviceBuffer | None) -> None: ...
    def inputs(
        self,
        view: StepView,
        inputs: Inputs,
        work: Work,
        model: Model,
        draft_cache: DeviceBuffer | None,
    ) -> None: ...
    def forwarded(self, view: StepView, model: Model) -> None: ...
    def sampled(
        self,
        view: StepView,
        work: Work,
        model: Model,
        draft_cache: DeviceBuffer | None,
        outputs: StepOutputs,
        sampled: DeviceBuffer,
    ) -> None: ...
    def processed(self, plan: StepPlan, scheduler: Scheduler) -> None: ...


class NullProbe:
    """Observes nothing: the bare engine."""

    def scheduled(self, plan: StepPlan, scheduler: Scheduler, *, in_flight: int) -> None:
        pass

    def prepared(
        self,
        view: StepView,
        row_of: Mapping[str, int],
        inputs: Inputs,
        prev: PrevStep | None,
        *,
        backup: np.ndarray,
        targets: np.ndarray,
    ) -> None:
        pass

    def zeroed(self, view: StepView, model: Model, draft_cache: DeviceBuffer | None) -> None:
        pass

    def inputs(
        self,
        view: StepView,
        inputs: Inputs,
        work: Work,
        model: Model,
        draft_cache: DeviceBuffer | None,
    ) -> None:
        pass

    def forwarded(self, view: StepView, model: Model) -> None:
        pass

    def sampled(
        self,
        view: StepView,
        work: Work,
        model: Model,
        draft_cache: DeviceBuffer | None,
        outputs: StepOutputs,
        sampled: DeviceBuffer,
    ) -> None:
        pass

    def processed(self, plan: StepPlan, scheduler: Scheduler) -> None:
        pass
