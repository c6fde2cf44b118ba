"""The engine on a GPU: right under every timing, recorded failures again, no hidden waits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from racegate.check.checker import Checker
from racegate.check.repro.replay import replay
from racegate.device.cuda.pacing import Pacing
from racegate.device.cuda.site import CudaSite
from racegate.device.cuda.torch import TorchDriver
from racegate.engine.observe.probe import Probe
from racegate.history.finding import Verdict
from racegate.history.outcome import RunResult
from racegate.history.replayed import ReplayOutcome
from racegate.history.schedule import EAGER, LATE, lane_late
from racegate.history.witness import load_witness
from racegate.scenario.settings import Numerics
from support import checker, of_one_rank, witnesses_of_one_rank

WITNESSES = witnesses_of_one_rank()
TIMES = 20
STEADY_FROM = 4


def judge_on(driver: TorchDriver, name: str, *, pacing: Pacing) -> Checker:
    return Checker(checker(name).scenario, cuda=CudaSite(driver, pacing=pacing))


def assert_right(result: RunResult) -> None:
    assert result.findings == ()
    assert result.verdict is Verdict.PROVED, result.unmet
    assert all(hold.realised == hold.matched for hold in result.holds)


@pytest.mark.parametrize("pacing", list(Pacing))
@pytest.mark.parametrize("name", of_one_rank())
def test_every_scenario_is_right_under_every_timing(
    name: str, pacing: Pacing, driver: TorchDriver
) -> None:
    judge = judge_on(driver, name, pacing=pacing)
    trace = judge.execute(schedule=EAGER).trace
    # A preempted request may store and never load: a lane without work has nothing to be held.
    at_work = {trace.lanes[event.lane] for event in trace.events}
    lanes = [lane for lane in judge.lanes if lane in at_work]
    for schedule in (EAGER, LATE, *map(lane_late, lanes)):
        assert_right(judge.run(schedule=schedule))


@pytest.mark.parametrize("name", of_one_rank())
def test_paced_eagerly_the_trace_is_that_of_the_virtual_device(
    name: str, driver: TorchDriver
) -> None:
    judge = judge_on(driver, name, pacing=Pacing.EAGER)
    for schedule in (EAGER, LATE):
        found, expected = judge.execute(schedule=schedule), checker(name).execute(schedule=schedule)
        assert found.trace == expected.trace


@pytest.mark.parametrize("path", WITNESSES, ids=lambda path: path.name)
def test_every_witness_replays(path: Path, driver: TorchDriver) -> None:
    found = replay(load_witness(path), times=TIMES, command="", cuda=CudaSite(driver))
    assert found.outcomes == {ReplayOutcome.REPRODUCED: TIMES}
    if found.last.config["model"]["numerics"] == Numerics.EXACT:
        assert found.digests == 1


@pytest.mark.parametrize("path", WITNESSES, ids=lambda path: path.name)
def test_left_to_itself_the_holds_of_a_witness_are_realised(
    path: Path, driver: TorchDriver
) -> None:
    site = CudaSite(driver, pacing=Pacing.NATURAL)
    found = replay(load_witness(path), times=TIMES, command="", cuda=site)
    assert ReplayOutcome.NOT_REALISED not in found.outcomes


@contextmanager
def hidden_waits_are_errors() -> Iterator[None]:
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.filterwarnings("ignore:Synchronization debug mode:UserWarning")
@pytest.mark.parametrize(
    "name",
    ["steady-mixed-accepts", "mtp-drafter", "drawn-drafts", "mrope-image", "graph-uniform-decode"],
)
def test_steady_decoding_waits_nowhere_unseen(name: str, driver: TorchDriver) -> None:
    judge = judge_on(driver, name, pacing=Pacing.NATURAL)
    judge.run()  # compiles and loads
    device = CudaSite(driver, pacing=Pacing.NATURAL).device(judge.lanes, schedule=EAGER)
    try:
        engine = judge.subject.engine(device, Probe(), None)
        for step in range(STEADY_FROM):
            engine.step(step)
        with hidden_waits_are_errors():
            step = STEADY_FROM
            while not engine.is_done:
                engine.step(step)
                step += 1
        device.finish()
    finally:
        device.close()
