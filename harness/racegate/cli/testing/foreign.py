"""A scenario on an engine of one's own, through its adapter, as a test."""

from __future__ import annotations

import pytest

from racegate.history.outcome import RunResult
from racegate.history.schedule import Schedule
from racegate.scenario.spec import OwnScenario
from racegate.targets.adapters.client import Adapter
from racegate.targets.adapters.judge import LANDINGS_MAX, AdapterCommand, AdapterJudge


def run_foreign(
    command: tuple[str, ...],
    scenario: OwnScenario,
    *,
    file: str,
    schedule: Schedule | None,
    is_searched: bool,
) -> RunResult:
    """The judged run. Skips the test if the engine does not run such a scenario.

    schedule: one to run under; is_searched: the landings of what races are tried
    """
    again = AdapterCommand(scenario=file, command=command)
    with Adapter(list(command)) as adapter:
        judge = AdapterJudge(
            adapter,
            scenario,
            landings_max=LANDINGS_MAX if is_searched else 0,
            command=again,
        )
        judged = judge.judge() if schedule is None else judge.under(schedule)
    if judged.refused:
        pytest.skip(f"{judged.target} does not run this: {judged.refused}")
    return judged
