"""An engine in vLLM's own environment: started once, or, on a GPU, once for each run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from racegate.interpose.errors import BadInput
from racegate.interpose.outcome import DeviceKind, Plan, Sources
from racegate.scenario.spec import Scenario
from racegate.targets.common.client import RUN_S, Engine, open_process
from racegate.targets.common.wire import Fidelity, ReleaseRun
from racegate.targets.vllm.cell import Cell
from racegate.targets.vllm.environment import VLLM
from racegate.targets.vllm.unmodelled import refusal_of

SERVE = "racegate.targets.vllm.inside.serve"


@dataclass(frozen=True, slots=True)
class FreshEngines:
    """An engine per run: of a GPU, which cannot be forked. What it computes there is scripted."""

    cell: Cell
    log: Path | None = None
    run_s: float = RUN_S

    def run(self, scenario: Scenario, plan: Plan) -> ReleaseRun:
        """One run under a plan."""
        cell = msgspec.structs.replace(self.cell, fidelity=Fidelity.HOLLOW)
        with open_cell(cell, log=self.log, run_s=self.run_s, kind=DeviceKind.CUDA) as engine:
            return engine.run(scenario, plan)


@contextmanager
def open_cell(
    cell: Cell,
    *,
    log: Path | None = None,
    run_s: float = RUN_S,
    kind: DeviceKind = DeviceKind.VIRTUAL,
    sources: Sources = (),
    count: int = 1,
) -> Iterator[Engine]:
    """Starts the vLLM of a cell on a device. Raises BadInput if it is not set up, does not start,
    or is asked for what is not judged.

    log: where what it prints goes, if not to stderr; run_s: seconds that one run may take
    sources: texts that it reads in the place of its files; count: of it and its siblings
    """
    if why := refusal_of(cell.arguments):
        raise BadInput(why)
    environment = VLLM.environment_of(cell.release, checkout=cell.checkout)
    asked = msgspec.json.encode(cell).decode()
    opened = open_process(
        environment, SERVE, (asked,), log=log, kind=kind, sources=sources, count=count
    )
    with opened as servers:
        yield Engine(servers, fidelity=cell.fidelity, run_s=run_s)
