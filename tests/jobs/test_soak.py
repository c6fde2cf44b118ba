"""Soak on a driver without a GPU: silent on a right device, loud on one that does not hold, keep
order or compute.
"""

from __future__ import annotations

import dataclasses
import math
import time
from functools import reduce
from itertools import islice
from random import Random
from typing import Any

import msgspec
import pytest

from numpy_backend import numpy_backend
from racegate.check.checker import Checker
from racegate.cli.measure.soak import exit_code_of
from racegate.device.cuda.pacing import Pacing
from racegate.device.cuda.site import CudaSite
from racegate.history.schedule import LATE
from racegate.jobs.pools.pool import Done, Ended, InProcessPool, Lost, Tick
from racegate.jobs.soak import (
    SoakResult,
    SoakSpec,
    SoakStop,
    SoakTally,
    SoakWorker,
    Tally,
    _result,
    soak_once,
    soak_scenario,
)
from support import SCENARIOS, scenario
from sync_driver import SyncDriver

NAME = "three-row-cycle"
RUNS = 12


def plan(pacing: Pacing = Pacing.EAGER) -> SoakSpec:
    return SoakSpec(runs=RUNS, seconds=None, workers=1, seed=3, pacing=pacing)


def tally_on(driver: Any, pacing: Pacing = Pacing.EAGER) -> Tally:
    site = CudaSite(driver, pacing=pacing)
    tallies = soak_scenario(scenario(NAME), plan(pacing), site)
    return reduce(Tally.plus, islice(tallies, RUNS), Tally(scenario=NAME))


@pytest.mark.parametrize("pacing", list(Pacing))
def test_a_right_device_is_clean(pacing: Pacing) -> None:
    tally = tally_on(SyncDriver(numpy_backend(), random=Random(1)), pacing)
    assert (tally.runs, tally.wrong, tally.expired, tally.differing) == (RUNS, 0, 0, 0)
    assert tally.held == RUNS - 1  # all but the eager one
    assert tally.examples == ()


class Loose(SyncDriver):
    """Streams do not wait for words."""

    def wait_word(self, stream: Any, words: Any, index: int) -> None:
        pass


def test_a_device_that_does_not_hold_differs_and_gives_up_holds() -> None:
    tally = tally_on(Loose(numpy_backend()))
    assert tally.unrealised > 0
    assert tally.differing > 0
    assert "--hold" in " ".join(tally.examples)


def test_a_device_that_computes_wrongly_is_wrong() -> None:
    right = numpy_backend()
    driver = SyncDriver(
        dataclasses.replace(right, accepted_count=lambda sampled, accepted: accepted.fill_(1))
    )
    assert tally_on(driver).wrong == RUNS


class Blocking(SyncDriver):
    """Every copy waits for the whole device."""

    def copy(self, stream: Any, target: Any, source: Any) -> None:
        super().copy(stream, target, source)
        self.drain()


def test_a_device_that_waits_unasked_has_to_be_ended() -> None:
    site = CudaSite(Blocking(numpy_backend(), may_block=True), patience_s=0.3)
    judge, virtual = Checker(scenario(NAME), cuda=site), Checker(scenario(NAME))
    expected = virtual.execute(schedule=LATE).trace
    assert soak_once(judge, site, LATE, expected).expired == 1


def heard_of(*names: str) -> SoakTally:
    return SoakTally(tallies={name: Tally(scenario=name) for name in names})


def ran(name: str, worker: int) -> Done[Tally | SoakStop]:
    return Done(worker=worker, number=0, name=name, result=Tally(scenario=name, runs=1))


def test_a_worker_that_is_lost_hung_where_it_was() -> None:
    heard = heard_of("a", "b", "c")
    for event in (ran("a", 0), ran("b", 1), Tick(), ran("a", 0)):
        heard.take(event)
    heard.take(Lost(worker=1, doing="b", why="has said nothing for 120 s"))
    heard.take(Ended(worker=0, result=None))
    assert {name: tally.runs for name, tally in heard.tallies.items()} == {"a": 2, "b": 1, "c": 0}
    assert (heard.hung, heard.failed, heard.runs) == (["b"], {}, 3)


def test_a_rate_is_runs_by_the_time_that_they_took(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("racegate.jobs.soak.environment_of", lambda device: {})
    heard = heard_of("b", "a")
    for name in "aab":
        heard.take(ran(name, 0))
    plan = SoakSpec(runs=4, seconds=None, workers=1, seed=1, pacing=Pacing.EAGER)
    found = _result(plan, heard, 2.0)
    assert (found.total.runs, found.runs_per_second) == (3, 1.5)
    assert [tally.scenario for tally in found.scenarios] == ["a", "b"]


def worked(seconds: float | None, driver: Any) -> SoakTally:
    """What a worker says that has two scenarios and two runs of each to make."""
    names = ("two-row-cycle", "stop-token")
    paths = [SCENARIOS / f"{name.replace('-', '_')}.toml" for name in names]
    asked = SoakSpec(runs=4, seconds=seconds, workers=1, seed=1, pacing=Pacing.EAGER)
    heard = heard_of(*names)
    end = math.inf if seconds is None else time.monotonic() + seconds
    tasks = heard.tasks_of(0, names, workers=1, runs_each=2, end=end)
    for event in InProcessPool().run(lambda _: SoakWorker(CudaSite(driver), paths, asked), [tasks]):
        heard.take(event)
    return heard


@pytest.mark.parametrize(("seconds", "runs"), [(None, [2, 2]), (0.0, [1, 0])])
def test_a_worker_takes_its_scenarios_in_turn(seconds: float | None, runs: list[int]) -> None:
    heard = worked(seconds, SyncDriver(numpy_backend()))
    assert [tally.runs for tally in heard.tallies.values()] == runs
    assert (heard.hung, heard.failed) == ([], {})


def test_workers_share_the_scenarios() -> None:
    heard = heard_of("a", "b", "c")
    shares = [
        heard.tasks_of(worker, ("a", "b", "c"), workers=2, runs_each=2, end=math.inf)
        for worker in range(2)
    ]
    assert [[task.content for task in share] for share in shares] == [[0, 2, 0, 2], [1, 1]]


class Broken(SyncDriver):
    def copy(self, stream: Any, target: Any, source: Any) -> None:
        raise RuntimeError("cuMemcpyAsync failed: 999")


def test_a_worker_that_fails_says_why_and_goes_no_further() -> None:
    heard = worked(None, Broken(numpy_backend()))
    assert heard.failed == {0: "worker 0: RuntimeError: cuMemcpyAsync failed: 999"}
    assert heard.runs == 0


def test_what_held_nothing_is_inconclusive_and_what_hung_is_the_harness() -> None:
    whole = Tally(scenario="a", runs=3, held=2)
    result = SoakResult(
        schema="racegate/1",
        environment={},
        plan=plan(),
        total=whole,
        seconds=1.0,
        runs_per_second=3.0,
        hung=(),
        failed=(),
        scenarios=(whole,),
    )
    change = msgspec.structs.replace
    assert exit_code_of(result) == 0
    assert exit_code_of(change(result, scenarios=(whole, Tally(scenario="b", runs=1)))) == 4
    assert exit_code_of(change(result, total=change(whole, wrong=1))) == 1
    assert exit_code_of(change(result, failed=("worker 0: no",))) == 3
    assert exit_code_of(change(result, hung=("a",), total=change(whole, wrong=1))) == 3
