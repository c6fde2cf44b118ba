"""What a gate found, looked into: of all scenarios that fail in one way, the run that tells most,
under the fewest holds, and gone on with until a user would see it.
"""

from __future__ import annotations

from typing import NamedTuple

from racegate.check.checker import Checker
from racegate.check.repro.minimise import gone_on, with_few_holds
from racegate.check.repro.search import FailureSighting
from racegate.faults.catalogue import find_fault
from racegate.faults.fault import Fault
from racegate.history.outcome import RunResult, SharedFinding
from racegate.jobs.gate import GateSpec


class CauseLook(NamedTuple):
    """What is shown of a finding that scenarios share. result: of the run that is shown

    sight: of the search for a run in which a user sees it, None if there was none to make
    """

    shared: SharedFinding
    checker: Checker
    fault: Fault | None
    result: RunResult
    sight: FailureSighting | None


def look_into(
    shared: SharedFinding, given: GateSpec, *, budget: int | None, seed: int
) -> CauseLook:
    """Runs the first scenario of it again. budget: schedules of a search for a run in which a user
    sees it; None: no search
    """
    run, _ = shared.seen[0]
    path, scenario = next(each for each in given.scenarios if each[1].name == run.scenario)
    fault = None if run.fault is None else find_fault(run.fault)
    checker = Checker(scenario, replay=f"racegate run {path}")
    if budget is None:
        return CauseLook(shared, checker, fault, with_few_holds(checker, run, fault), None)
    return CauseLook(
        shared, checker, fault, *gone_on(checker, run, fault, budget=budget, seed=seed)
    )
