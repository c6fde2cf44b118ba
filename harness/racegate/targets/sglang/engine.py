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
        if any(request.stop_after for request in scenario.requests):
            stopped = tuple(self._stopped(scenario, request) for request in scenario.requests)
            scenario = msgspec.structs.replace(scenario, requests=stopped)
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
            tokens = _until(request.stop_token, alone.delivered.get(request.name, ()))
            count = len(told.delivered[request.name]) if request.name in given_up else len(tokens)
            plain[request.name] = tokens[:count]
        return msgspec.structs.replace(told, plain=plain)

    def _stopped(self, scenario: Scenario, request: Request) -> Request:
        """A request that ends by its place in what is said ends with the token that stands there:
        nobody knows it before plain decoding has said it.
        """
        said = self._alone(scenario, request).delivered.get(request.name, ())
        if not request.stop_after or len(said) < request.stop_after:
            return request
        token = said[request.stop_after - 1]
        return msgspec.structs.replace(request, stop_after=None, stop_token=token)

    def _alone(self, scenario: Scenario, request: Request) -> ReleaseRun:
        """Plain decoding of a request that nothing stops."""
        only = msgspec.structs.replace(request, arrive=0, stop_after=None, stop_token=None)
        if only not in self._plain:
            alone = msgspec.structs.replace(scenario, requests=(only,), events=(), expect=Expect())
            self._plain[only] = self._runs.run(alone, Plan(is_recording=False))
        return self._plain[only]


def _until(stop: int | None, tokens: tuple[int, ...]) -> tuple[int, ...]:
    """The tokens up to the first one that ends the request, and that."""
    return tokens[: tokens.index(stop) + 1] if stop in tokens else tokens


@contextmanager
def open_scheduler(
    environment: Environment,
    cell: SchedulerCell,
    *,
    log: Path | None = None,
    run_s: float = RUN_S,
    sources: Sources = (),
    count: int = 1,
) -> Iterator[Engine]:
    """Starts SGLang's scheduler on the virtual device. log: where what it prints goes, if not to
    stderr; run_s: seconds that one run may take; sources, count: as `open_cell` has them
    """
    without = ",".join(repair.value for repair in cell.without)
    arguments = (cell.model.value, without)
    opened = open_process(environment, SERVE, arguments, log=log, sources=sources, count=count)
    with opened as servers:
        yield Engine(servers, run_s=run_s)
