"""Whether a finding is fixed: its witness again, then a clean run that is long enough to say so.

The scenario that showed it comes first, behind it scenarios that no campaign has looked at: those
after the last of its seed. What is found and does not replay is no finding but a broken harness.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from enum import StrEnum
from functools import partial
from itertools import chain

import msgspec

from racegate.check.repro.replay import replay
from racegate.check.selfcheck import SelfCheck, together
from racegate.history.breakage import Breakage
from racegate.history.exit_code import ExitCode
from racegate.history.outcome import SCHEMA
from racegate.history.replayed import ReplayOutcome
from racegate.history.witness import Witness
from racegate.jobs.findability import Findability, rate_below
from racegate.jobs.fuzz import make_worker
from racegate.jobs.generated import CampaignSpec, Report
from racegate.jobs.pools.choice import pool_of
from racegate.jobs.pools.pool import Done, Ended, Failed, Lost, SetAside, Task
from racegate.jobs.stores.records import KeptFinding
from racegate.jobs.stores.witnesses import own_witness

TIMES = 2


class VerifyOutcome(StrEnum):
    """still there: its witness, or a new scenario, shows it; fixed: neither does, for long enough
    too short: neither does, so far; flaky: it was found, and does not replay
    """

    STILL_THERE = "still there"
    FIXED = "fixed"
    TOO_SHORT = "too short"
    FLAKY = "flaky"


CODES = {
    VerifyOutcome.STILL_THERE: ExitCode.FINDING,
    VerifyOutcome.FIXED: ExitCode.CLEAN,
    VerifyOutcome.TOO_SHORT: ExitCode.INCONCLUSIVE,
    VerifyOutcome.FLAKY: ExitCode.BROKEN_HARNESS,
}


class VerifyObject(msgspec.Struct, frozen=True, kw_only=True):
    """A finding looked for again.

    outcome: whether it is fixed; replay: what its witness shows now
    before: how often it was met; scenarios: looked at now, without it
    rate_below: what its rate is below now, at 99 %; null if it was seen
    seen_in: index of the scenario that showed it again, null without one
    breakages: errors of the harness
    """

    schema: str
    signature: str
    outcome: VerifyOutcome
    replay: ReplayOutcome
    before: Findability
    scenarios: int
    rate_below: float | None
    seen_in: int | None
    selfcheck: SelfCheck
    breakages: tuple[Breakage, ...]

    @property
    def exit_code(self) -> ExitCode:
        """3 whatever was found, if the harness is not sound."""
        if self.breakages or not self.selfcheck.is_sound:
            return ExitCode.BROKEN_HARNESS
        return CODES[self.outcome]


class _Run:
    """A clean run as far as it got."""

    def __init__(self) -> None:
        self.scenarios = 0
        self.hit: Report | None = None
        self.selfcheck = SelfCheck()
        self.breakages: list[Breakage] = []


def verify(
    finding: KeptFinding,
    spec: CampaignSpec,
    before: Findability,
    *,
    first_new: int,
    scenarios_max: int | None = None,
    workers: int = 1,
    on_scenario: Callable[[int], None] = lambda done: None,
) -> VerifyObject:
    """spec: of the campaign that found it; first_new: index of a scenario that it has not seen"""
    run = _Run()
    again = replay(own_witness(finding.witness), times=TIMES, command="")
    is_same = again.digests == 1
    if is_same and again.outcome is not ReplayOutcome.REPRODUCED:
        most = before.clean_run if scenarios_max is None else min(before.clean_run, scenarios_max)
        indices = chain([finding.index], range(first_new, first_new + most - 1))
        _look(run, spec, finding.signature, indices, workers=workers, on_scenario=on_scenario)
    is_flaky = not is_same or (run.hit is not None and not _replays(run.hit))
    if is_flaky:
        outcome = VerifyOutcome.FLAKY
    elif run.hit is not None or again.outcome is ReplayOutcome.REPRODUCED:
        outcome = VerifyOutcome.STILL_THERE
    else:
        outcome = (
            VerifyOutcome.TOO_SHORT if run.scenarios < before.clean_run else VerifyOutcome.FIXED
        )
    is_clean = outcome in (VerifyOutcome.FIXED, VerifyOutcome.TOO_SHORT)
    return VerifyObject(
        schema=SCHEMA,
        signature=finding.signature,
        outcome=outcome,
        replay=again.outcome,
        before=before,
        scenarios=run.scenarios,
        rate_below=rate_below(run.scenarios) if is_clean else None,
        seen_in=None if run.hit is None else run.hit.index,
        selfcheck=run.selfcheck,
        breakages=(*again.last.breakages, *run.breakages),
    )


def _replays(report: Report) -> bool:
    """Whether what a scenario showed shows again."""
    found = report.found
    return found is not None and _reproduces(own_witness(found.witness))


def _reproduces(witness: Witness) -> bool:
    again = replay(witness, times=TIMES, command="")
    return again.digests == 1 and again.outcome is ReplayOutcome.REPRODUCED


def _look(
    run: _Run,
    spec: CampaignSpec,
    signature: str,
    indices: Iterator[int],
    *,
    workers: int,
    on_scenario: Callable[[int], None],
) -> None:
    """Scenarios until the last, or until one shows the signature."""

    def tasks() -> Iterator[Task[int]]:
        for index in indices:
            if run.hit is not None or run.breakages:
                return
            yield Task(name=f"scenario {index}", content=index)

    make = partial(make_worker, spec, frozenset())
    shared = tasks()
    with closing(pool_of(workers).run(make, [shared] * workers)) as events:
        for event in events:
            match event:
                case Done(result=Report() as report):
                    run.selfcheck = together((run.selfcheck, report.selfcheck))
                    run.breakages += report.breakages
                    if report.signature == signature:
                        run.hit = run.hit or report
                    else:
                        run.scenarios += 1
                    on_scenario(run.scenarios)
                case Ended(result=SelfCheck() as check):
                    run.selfcheck = together((run.selfcheck, check))
                case Failed() | Lost() | SetAside():
                    run.breakages.append(event.breakage)
