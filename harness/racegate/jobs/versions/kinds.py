"""vLLM and SGLang, for a history of their releases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from racegate.jobs.versions.cells import CellReport
from racegate.jobs.versions.engines import OpenedEngine
from racegate.targets.common.environment import Say
from racegate.targets.sglang import environment as of_sglang
from racegate.targets.sglang.cell import SchedulerCell
from racegate.targets.sglang.engine import WithPlain, open_scheduler
from racegate.targets.sglang.wire import ModelKind
from racegate.targets.vllm import environment as of_vllm
from racegate.targets.vllm.cell import Cell
from racegate.targets.vllm.engine import open_engine
from racegate.targets.vllm.sensitivity import sensitivity_of
from racegate.targets.vllm.wire import ModelRunner, StateMode


@dataclass(frozen=True, slots=True)
class VllmKind:
    """vLLM, with each of these runners in each of these cache modes."""

    runners: tuple[ModelRunner, ...] = tuple(ModelRunner)
    modes: tuple[StateMode, ...] = tuple(StateMode)

    @property
    def name(self) -> str:
        return of_vllm.ENGINE

    def cells(self, release: str) -> Sequence[CellReport]:
        pairs = product(self.runners, self.modes)
        return [CellReport(release=release, runner=runner, mode=mode) for runner, mode in pairs]

    def set_up(self, release: str, say: Say) -> None:
        of_vllm.set_up(release, say)

    @contextmanager
    def opened(self, cell: CellReport, log: Path) -> Iterator[OpenedEngine]:
        runner, mode = ModelRunner(cell.runner), StateMode(cell.mode)
        environment = of_vllm.environment_of(cell.release)
        with open_engine(environment, runner=runner, mode=mode, log=log) as engine:
            yield OpenedEngine(
                Cell(release=cell.release, runner=runner, mode=mode),
                engine,
                cpu_s=lambda: engine.cpu_s,
                sensitivity=lambda: sensitivity_of(engine),
            )


@dataclass(frozen=True, slots=True)
class SglangKind:
    """SGLang, with each of these models."""

    models: tuple[ModelKind, ...] = tuple(ModelKind)

    @property
    def name(self) -> str:
        return of_sglang.ENGINE

    def cells(self, release: str) -> Sequence[CellReport]:
        return [CellReport(release=release, model=model) for model in self.models]

    def set_up(self, release: str, say: Say) -> None:
        of_sglang.set_up(release, say)

    @contextmanager
    def opened(self, cell: CellReport, log: Path) -> Iterator[OpenedEngine]:
        scheduler = SchedulerCell(release=cell.release, model=ModelKind(cell.model))
        environment = of_sglang.environment_of(cell.release)
        with open_scheduler(environment, scheduler, log=log) as engine:
            yield OpenedEngine(
                scheduler, WithPlain(engine), cpu_s=lambda: engine.cpu_s, sensitivity=dict
            )
