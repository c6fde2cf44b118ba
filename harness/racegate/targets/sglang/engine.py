"""A scheduler in SGLang's own environment, and what plain decoding gives there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from racegate.interpose.outcome import Ending, Plan, Sources
from racegate.scenario.expect import Expect
from racegate.scenario.spec import Abort, Request, Scenario
from racegate.targets.common.cell import Runs
from racegate.targets.common.client import RUN_S, Engine, open_process
from racegate.targets.common.environment import Environment
from racegate.targets.common.wire import ReleaseRun
from racegate.targets.sglang.cell import SchedulerCell

SERVE = "racegate.targets.sglang.inside.serve"


class WithPlain:
    """Runs, with the tokens that each request gets when it is alone and nothing is cached: the
    plain decoding that a schedule must not change.
    """

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._plain: dict[Request, ReleaseRun] = {}

    def run(self, scenario: Scenario, plan: Plan) -> ReleaseRun:
        """One run under a plan. Where plain decoding comes to no end there is nothing to compare it
        with, and it ends as that did.
        """
        told = self._runs.run(scenario, plan)
        if not told.delivered:
            return told
        given_up = {event.request for event in scenario.events if isinstance(event, Abort)}
        plain = {}
        for request in scenario.requests:
            alone = self._alone(scenario, request)
            if alone.ending is not Ending.FINISHED:
                return msgspec.structs.replace(
                    told,
                    ending=alone.ending,
                    exit_code=alone.exit_code,
                    message=f"plain decoding of request {request.name}: {alone.message}",
                )
            tokens = alone.delivered.get(request.name, ())
            count = len(told.delivered[request.name]) if request.name in given_up else len(tokens)
            plain[request.name] = tokens[:count]
        return msgspec.structs.replace(told, plain=plain)

    def _alone(self, scenario: Scenario, request: Request) -> ReleaseRun:
        if request not in self._plain:
            only = msgspec.structs.replace(request, arrive=0)
            alone = msgspec.structs.replace(scenario, requests=(only,), events=(), expect=Expect())
            self._plain[request] = self._runs.run(alone, Plan(is_recording=False))
        return self._plain[request]


@contextmanager
def open_scheduler(
    environment: Environment,
    cell: SchedulerCell,
    *,
    log: Path | None = None,
    run_s: float = RUN_S,
    sources: Sources = (),
) -> Iterator[Engine]:
    """Starts SGLang's scheduler on the virtual device. log: where what it prints goes, if not to
    stderr; run_s: seconds that one run may take; sources: as `open_cell` has them
    """
    without = ",".join(repair.value for repair in cell.without)
    arguments = (cell.model.value, without)
    with open_process(environment, SERVE, arguments, log=log, sources=sources) as server:
        yield Engine(server, run_s=run_s)
