"""An engine in vLLM's own environment: started once, or, on a GPU, once for each run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from racegate.interpose.outcome import DeviceKind, Plan
from racegate.scenario.spec import Scenario
from racegate.targets.common.client import RUN_S, Engine, open_process
from racegate.targets.common.environment import Environment
from racegate.targets.common.wire import Fidelity, ReleaseRun
from racegate.targets.vllm.cell import Cell
from racegate.targets.vllm.environment import VLLM
from racegate.targets.vllm.wire import ModelRunner, StateMode


class FreshEngines:
    """An engine per run: of a GPU, which cannot be forked."""

    def __init__(
        self,
        environment: Environment,
        *,
        runner: ModelRunner,
        mode: StateMode,
        log: Path | None,
        run_s: float = RUN_S,
    ) -> None:
        self._open = partial(
            open_engine, environment, runner=runner, mode=mode, log=log, run_s=run_s
        )

    def run(self, scenario: Scenario, plan: Plan) -> ReleaseRun:
        """One run under a plan."""
        with self._open(kind=DeviceKind.CUDA) as engine:
            return engine.run(scenario, plan)


@contextmanager
def open_engine(
    environment: Environment,
    *,
    runner: ModelRunner,
    mode: StateMode,
    fidelity: Fidelity = Fidelity.HOLLOW,
    log: Path | None = None,
    kind: DeviceKind = DeviceKind.VIRTUAL,
    run_s: float = RUN_S,
) -> Iterator[Engine]:
    """Starts vLLM on a device. log: where what it prints goes, if not to stderr; run_s: seconds
    that one run may take
    """
    module = "racegate.targets.vllm.inside.serve"
    arguments = (runner, mode, fidelity)
    with open_process(environment, module, arguments, log=log, kind=kind) as server:
        yield Engine(server, fidelity=fidelity, run_s=run_s)


@contextmanager
def open_cell(cell: Cell, *, log: Path | None = None, run_s: float = RUN_S) -> Iterator[Engine]:
    """Starts the vLLM of a cell on the virtual device. Raises BadInput if it is not set up or does
    not start.
    """
    with open_engine(
        environment_in(cell),
        runner=cell.runner,
        mode=cell.mode,
        fidelity=cell.fidelity,
        log=log,
        run_s=run_s,
    ) as engine:
        yield engine


def fresh_engines(cell: Cell, *, log: Path | None = None, run_s: float = RUN_S) -> FreshEngines:
    """What starts the vLLM of a cell on a GPU for each run. Raises BadInput if it is not set up."""
    environment = environment_in(cell)
    return FreshEngines(environment, runner=cell.runner, mode=cell.mode, log=log, run_s=run_s)


def environment_in(cell: Cell) -> Environment:
    """The environment of a cell's release, with its checkout. Raises BadInput."""
    return VLLM.environment_of(cell.release, checkout=cell.checkout)
