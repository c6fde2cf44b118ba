"""Releases of vLLM and SGLang: how each is set up, opened, and witnessed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import TracebackType
from typing import TypeAlias

from racegate.interpose.outcome import Sources
from racegate.jobs.stores.witnesses import Reader
from racegate.scenario.errors import BadInputError, BrokenHarnessError
from racegate.scenario.spec import Scenario
from racegate.targets.common.cell import EngineCell, Runs
from racegate.targets.common.client import RUN_S, Engine
from racegate.targets.common.environment import EnginePackage
from racegate.targets.common.judge import ReleaseVerdict, lost_verdict
from racegate.targets.common.sensitivity import Sensitivity
from racegate.targets.common.server import ServerLost
from racegate.targets.common.witnesses.witness import ReleaseWitness
from racegate.targets.sglang.cell import SchedulerCell
from racegate.targets.sglang.engine import WithPlain, open_scheduler
from racegate.targets.sglang.environment import SGLANG
from racegate.targets.sglang.witness import SGLANG_WITNESSES, SchedulerWitness
from racegate.targets.vllm.cell import Cell
from racegate.targets.vllm.engine import open_cell
from racegate.targets.vllm.environment import VLLM
from racegate.targets.vllm.sensitivity import sensitivity_of
from racegate.targets.vllm.witness import VLLM_WITNESSES, EngineWitness

ReleaseCell: TypeAlias = Cell | SchedulerCell


@dataclass(frozen=True, slots=True)
class OpenedEngine:
    """An engine that is started. cell: which one; runs: what is judged
    engine: whose runs they are; sensitivity: whether a planted wrong value changes each
    observation, measured when it is first asked
    """

    cell: EngineCell
    runs: Runs
    engine: Engine
    sensitivity: Callable[[], Sensitivity]


Opens = Callable[[], AbstractContextManager[OpenedEngine]]
Judge = Callable[[OpenedEngine, Scenario], ReleaseVerdict]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseKind:
    """An engine that has releases. packaging: how they are set up; witness, reader: of those that
    are found in them
    """

    packaging: EnginePackage
    witness: type[ReleaseWitness]
    reader: Reader


OF_VLLM = ReleaseKind(packaging=VLLM, witness=EngineWitness, reader=VLLM_WITNESSES)
OF_SGLANG = ReleaseKind(packaging=SGLANG, witness=SchedulerWitness, reader=SGLANG_WITNESSES)


def kind_of(cell: EngineCell) -> ReleaseKind:
    """Whose release a cell is of."""
    return OF_VLLM if isinstance(cell, Cell) else OF_SGLANG


@contextmanager
def open_release(
    cell: EngineCell,
    *,
    log: Path | None = None,
    run_s: float = RUN_S,
    sources: Sources = (),
) -> Iterator[OpenedEngine]:
    """Starts the engine of a cell on the virtual device. Raises BadInput if it is not set up or
    does not start.

    log: where what it prints goes, if not to standard error; run_s: seconds that one run may take
    sources: texts that it reads in the place of its files
    """
    if isinstance(cell, Cell):
        with open_cell(cell, log=log, run_s=run_s, sources=sources) as engine:
            # Of the engine, not of a scenario: six runs, once.
            sensitivity = cache(partial(sensitivity_of, engine))
            yield OpenedEngine(cell, engine, engine, sensitivity)
        return
    assert isinstance(cell, SchedulerCell)
    environment = SGLANG.environment_of(cell.release, checkout=cell.checkout)
    with open_scheduler(environment, cell, log=log, run_s=run_s, sources=sources) as engine:
        yield OpenedEngine(cell, WithPlain(engine), engine, dict)


class ReopenedEngine:
    """An engine that is started when it is first needed, and anew when its process is gone, so that
    the rest is judged too.

    cell: which engine; opened: starts it; judge: of one scenario on it
    """

    def __init__(self, cell: ReleaseCell, opened: Opens, judge: Judge) -> None:
        self.cell = cell
        self._opened = opened
        self._judge = judge
        self._stack = ExitStack()
        self._engine: OpenedEngine | None = None
        self._was_lost = False

    def __enter__(self) -> ReopenedEngine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def opened(self) -> OpenedEngine:
        """The engine, started if it is not. Raises BadInputError if that fails."""
        if self._engine is None:
            self._engine = self._stack.enter_context(self._opened())
        return self._engine

    def judge(self, scenario: Scenario) -> ReleaseVerdict:
        """One scenario; where the engine is lost in it, or does not start anew, a verdict that says
        so. Raises BadInputError or BrokenHarnessError if it does not start at all.
        """
        try:
            return self._judge(self.opened(), scenario)
        except (BadInputError, BrokenHarnessError) as error:
            if not (self._was_lost or isinstance(error, ServerLost)):
                raise
            self._was_lost, self._engine = True, None
            self._stack.close()
            return lost_verdict(self.cell, scenario, str(error))
