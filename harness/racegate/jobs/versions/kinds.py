"""vLLM and SGLang, for a history of their releases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from racegate.jobs.versions.cells import CellReport
from racegate.targets.common.cell import EngineCell
from racegate.targets.common.environment import EnginePackage
from racegate.targets.sglang.cell import SchedulerCell
from racegate.targets.sglang.environment import SGLANG
from racegate.targets.sglang.wire import ModelKind
from racegate.targets.vllm.cell import Cell
from racegate.targets.vllm.environment import VLLM
from racegate.targets.vllm.wire import ModelRunner, StateMode


@dataclass(frozen=True, slots=True)
class VllmKind:
    """vLLM, with each of these runners in each of these cache modes."""

    runners: tuple[ModelRunner, ...] = tuple(ModelRunner)
    modes: tuple[StateMode, ...] = tuple(StateMode)

    @property
    def packaging(self) -> EnginePackage:
        """How a release is set up."""
        return VLLM

    def cells(self, release: str) -> Sequence[CellReport]:
        """The ways to run a release, with nothing in them yet."""
        pairs = product(self.runners, self.modes)
        return [CellReport(release=release, runner=runner, mode=mode) for runner, mode in pairs]

    def cell(self, report: CellReport) -> EngineCell:
        """Which engine a report is of."""
        runner, mode = ModelRunner(report.runner), StateMode(report.mode)
        return Cell(release=report.release, runner=runner, mode=mode)


@dataclass(frozen=True, slots=True)
class SglangKind:
    """SGLang, with each of these models."""

    models: tuple[ModelKind, ...] = (ModelKind.HYBRID, ModelKind.DENSE)

    @property
    def packaging(self) -> EnginePackage:
        return SGLANG

    def cells(self, release: str) -> Sequence[CellReport]:
        return [CellReport(release=release, model=model) for model in self.models]

    def cell(self, report: CellReport) -> EngineCell:
        return SchedulerCell(release=report.release, model=ModelKind(report.model))


EngineKind = VllmKind | SglangKind
