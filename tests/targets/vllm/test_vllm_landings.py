"""Landings of an operation that are forked from the one run that holds it."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import msgspec
import pytest
from test_vllm_convergence import BASE, CONVERGED, HELD, PLAN, TAKE, Asked
from test_vllm_search import SCENARIO

from bare_session import engine_session
from racegate.history.schedule import Hold
from racegate.interpose.outcome import Ending, Plan
from racegate.targets.common.client import landings_beside
from racegate.targets.common.inside.prefix_server import ForkedLandings
from racegate.targets.common.inside.session import EngineSession
from racegate.targets.common.wire import ReleaseRun, Task
from small_engine import SmallEngine, Wait

SIDE = 7  # a stream


def plan_of(held: str, until: str) -> Plan:
    return Plan(holds=(Hold(op=held, until=until),), is_recording=False)


def run_with_landings(small: SmallEngine, plan: Plan, result: Path, *, code: int = 0) -> ReleaseRun:
    """The run that holds longest; code: with which the forked processes end"""
    own: list[Path] = []

    def watch(engine: EngineSession) -> None:
        def land(label: str, path: Path) -> None:
            engine.listener.tell_gaps(None)
            engine.session.queue.land_at(label)
            own.append(path)

        engine.listener.tell_gaps(ForkedLandings(result, land).at)

    small.on_session = watch
    try:
        told = small.run(plan)
        if own:
            own[0].write_bytes(msgspec.json.encode(told))
    finally:
        if own:
            os._exit(code if own[0].exists() else 1)
    return told


@pytest.mark.parametrize("wait", [Wait.BEHIND, Wait.DEAD])
def test_landings_of_one_run_are_those_that_are_run_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait: Wait
) -> None:
    monkeypatch.setattr(threading, "active_count", lambda: 1)
    base = SmallEngine(wait).run(Plan())
    held = base.findings[0].pairs[0][0]
    result = tmp_path / "result"
    told = run_with_landings(SmallEngine(wait), plan_of(held, "forced"), result)
    assert told == SmallEngine(wait).run(plan_of(held, "forced")), "it goes on as if nobody forked"
    gaps = told.gaps[held][1:]
    assert gaps
    alone = {f"{held} until {gap}": SmallEngine(wait).run(plan_of(held, gap)) for gap in gaps}
    assert landings_beside(result) == alone


@pytest.mark.parametrize(("threads", "code"), [(2, 0), (1, 3)])
def test_what_was_not_forked_or_did_not_end_well_has_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int, code: int
) -> None:
    monkeypatch.setattr(threading, "active_count", lambda: threads)
    base = SmallEngine(Wait.BEHIND).run(Plan())
    held = base.findings[0].pairs[0][0]
    plan = plan_of(held, "forced")
    run_with_landings(SmallEngine(Wait.BEHIND), plan, tmp_path / "result", code=code)
    assert not list(tmp_path.iterdir())


def test_what_is_ordered_behind_the_held_operation_is_no_gap() -> None:
    engine = engine_session(Hold(op=HELD), is_recording=False)
    session = engine.session
    engine.listener.name_buffers([(0, 64, "counts")])
    cells = ((0, 4),)
    session.issue("d2h", 0, (), cells, lambda: None, stack=TAKE)
    asked: list[str] = []
    engine.listener.tell_gaps(asked.append)
    for stream in (SIDE, 0, SIDE, SIDE):
        session.issue("read", stream, cells, (), lambda: None, stack=TAKE)
    session.host_access("host read", cells, ())
    session.host_access("host read", ((32, 36),), ())
    gaps = engine.listener.gaps[HELD]
    assert len(gaps) == 4, "of three operations of another stream, and of the host"
    assert asked == gaps[1:]


class Landed(Asked):
    """A client's engine whose first run under a hold has a landing beside it."""

    def _ask(self, task: Task, timeout_s: float) -> ReleaseRun:
        told = super()._ask(task, timeout_s)
        if task.lands:
            self._landed = {f"{HELD} until gap": LANDED}
        return told


LANDED = msgspec.structs.replace(CONVERGED, gaps={HELD: ("host read", "gap")}, cpu_s=0.125)


def test_a_landing_that_was_made_is_not_asked_for() -> None:
    engine = Landed(BASE, BASE, CONVERGED)
    engine.run(SCENARIO, Plan())
    engine.run(SCENARIO, PLAN)
    asked = len(engine.tasks)
    told = engine.run(SCENARIO, plan_of(HELD, "gap"))
    assert (told.gaps, told.seen, told.cpu_s) == (LANDED.gaps, BASE.seen, 0.125)
    assert (len(engine.tasks), engine.runs) == (asked, 3)
    engine.run(SCENARIO, plan_of(HELD, "gap"))
    engine.run(SCENARIO, plan_of(HELD, "other gap"))
    engine.run(SCENARIO, msgspec.structs.replace(PLAN, polls=1))
    assert [task.lands for task in engine.tasks] == [False, False, True, False, False, False]


def test_a_run_that_was_lost_with_its_landings_is_made_without_them() -> None:
    lost = msgspec.structs.replace(CONVERGED, ending=Ending.LOST)
    engine = Asked(BASE, BASE, lost)
    engine.run(SCENARIO, Plan())
    engine.run(SCENARIO, PLAN)
    assert [task.lands for task in engine.tasks] == [False, False, True, False]
