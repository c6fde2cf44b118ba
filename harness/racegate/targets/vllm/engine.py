"""An engine in vLLM's own environment: started once, or, on a GPU, once for each run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from racegate.interpose.outcome import DeviceKind, Plan
from racegate.scenario.spec import Scenario
from racegate.targets.common.client import Engine, open_process
from racegate.targets.common.environment import Environment
from racegate.targets.common.wire import Fidelity, Told
from racegate.targets.vllm.wire import ModelRunner, StateMode


class FreshEngines:
    """An engine per run: of a GPU, which cannot be forked."""

    def __init__(
        self, environment: Environment, *, runner: ModelRunner, mode: StateMode, log: Path | None
    ) -> None:
        self._open = partial(open_engine, environment, runner=runner, mode=mode, log=log)

    def run(self, scenario: Scenario, plan: Plan) -> Told:
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
) -> Iterator[Engine]:
    """Starts vLLM on a device. log: where what it prints goes, if not to stderr."""
    module = "racegate.targets.vllm.inside.serve"
    arguments = (runner, mode, fidelity)
    with open_process(environment, module, arguments, log=log, kind=kind) as server:
        yield Engine(server, fidelity=fidelity)
