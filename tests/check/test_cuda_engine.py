"""The whole engine on CudaDevice, on a driver without a GPU: equal to the reference and, paced
eagerly, to the virtual device in every trace and every recorded failure.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
import torch

from numpy_backend import numpy_backend
from racegate.check.checker import Checker
from racegate.check.repro.replay import replay
from racegate.device.cuda.pacing import Pacing
from racegate.device.cuda.site import CudaSite
from racegate.faults.catalogue import find_fault
from racegate.history.finding import Verdict
from racegate.history.outcome import RunResult
from racegate.history.replayed import ReplayOutcome
from racegate.history.schedule import LATE, Schedule, lane_late
from racegate.history.witness import load_witness
from racegate_kernels.backend import triton_backend
from support import IS_NIGHTLY, SCENARIOS, checker, of_one_rank, witnesses_of_one_rank
from sync_driver import SyncDriver

WITNESSES = witnesses_of_one_rank()
# Its row starts name more tokens than there are: the launchers survive that, the twins raise.
TRITON_ONLY = {"pinned-input-overwrite.witness.json"}
# Poison among floats, of which the interpreter's NumPy warns.
NAN_IS_MEANT = pytest.mark.filterwarnings("ignore::RuntimeWarning")
# Kernels of every kind: columns, graphs, MTP, offload, masks, dummies, a second stream, float.
SOME = (
    "align-boundary-and-prefix-hit",
    "constrained-rows",
    "fresh-blocks-zeroed",
    "graph-align",
    "idle-rank-dummy-steps",
    "mtp-drafter",
    "offload-recycled-blocks",
    "plan-on-side-stream",
    "preempt-and-resume",
    "three-row-cycle",
)


def site(seed: int | None = None, *, pacing: Pacing = Pacing.EAGER) -> CudaSite:
    random = None if seed is None else Random(seed)
    return CudaSite(SyncDriver(numpy_backend(), random=random), pacing=pacing)


def on_cuda(name: str, where: CudaSite) -> Checker:
    return Checker(checker(name).scenario, cuda=where)


def assert_right(result: RunResult) -> None:
    assert result.findings == ()
    assert result.device == "cuda"
    assert result.verdict is Verdict.PROVED, result.unmet
    assert all(hold.realised == hold.matched for hold in result.holds)


@pytest.mark.parametrize("name", of_one_rank()[:: 1 if IS_NIGHTLY else 2])
def test_every_scenario_is_right_left_to_itself(name: str) -> None:
    assert_right(on_cuda(name, site(7, pacing=Pacing.NATURAL)).run())


@pytest.mark.parametrize("name", SOME)
def test_late_schedules_are_right_and_realised(name: str) -> None:
    lanes = checker(name).lanes
    for pacing in Pacing:
        judge = on_cuda(name, site(3, pacing=pacing))
        late = map(lane_late, lanes if pacing is Pacing.EAGER or IS_NIGHTLY else ())
        for schedule in (LATE, *late):
            assert_right(judge.run(schedule=schedule))


@pytest.mark.parametrize("name", SOME)
def test_paced_eagerly_the_trace_is_that_of_the_virtual_device(name: str) -> None:
    judge = on_cuda(name, site(11))
    for schedule in (Schedule(), LATE, lane_late("counts")):
        found, expected = judge.execute(schedule=schedule), checker(name).execute(schedule=schedule)
        assert found.trace == expected.trace
        assert len(found.observations) == len(expected.observations)


@pytest.mark.parametrize("path", WITNESSES, ids=lambda path: path.name)
def test_every_witness_replays_bit_for_bit(path: Path) -> None:
    if path.name in TRITON_ONLY:
        pytest.skip("the twins raise where the launchers go on: see below")
    found = replay(load_witness(path), times=1, command="", cuda=site(5))
    assert found.outcome is ReplayOutcome.REPRODUCED
    assert found.matches_record
    assert found.last.device == "cuda"


def test_an_engine_is_rehearsed_once_without_a_fault_and_once_with_each() -> None:
    """What is built when it runs first is built before a run is looked at."""
    where = site()
    made: list[object] = []
    device = where.device

    def counted(*arguments: Any, **settings: Any) -> Any:
        made.append(settings["schedule"])
        return device(*arguments, **settings)

    where.device = counted  # type: ignore[method-assign]
    judge = on_cuda("two-row-cycle", where)
    fault = find_fault("correction-partial-fields")
    for given, runs in ((None, 2), (None, 1), (fault, 2), (fault, 1)):
        before = len(made)
        judge.execute(schedule=LATE, fault=given)
        assert len(made) - before == runs
        assert made[-1] == LATE and LATE not in made[before:-1], "rehearsed without holds"


def triton_site() -> CudaSite:
    """The launchers themselves, under Triton's interpreter."""
    pytest.importorskip("triton", reason="has wheels for Linux only")
    if torch.cuda.is_available():
        pytest.skip("with a GPU Triton is not interpreted: tests/gpu runs it there")
    return CudaSite(SyncDriver(triton_backend()))


@NAN_IS_MEANT
@pytest.mark.parametrize("name", sorted(TRITON_ONLY))
def test_a_witness_that_only_the_launchers_survive(name: str) -> None:
    path = next(path for path in WITNESSES if path.name == name)
    found = replay(load_witness(path), times=1, command="", cuda=triton_site())
    assert found.outcome is ReplayOutcome.REPRODUCED


ON_LAUNCHERS = ["graph-padding-wrong", "boundary-migration-wrong"]
ON_LAUNCHERS += ["anchor-moved-by-drafts"] if IS_NIGHTLY else []


@NAN_IS_MEANT
@pytest.mark.parametrize("name", ON_LAUNCHERS)
def test_an_engine_on_the_launchers_is_right(name: str) -> None:
    # The smallest scenarios with graphs and with columns are those of witnesses, which were cut
    # behind what they show: they get the steps that they need to end.
    scenario = load_witness(SCENARIOS / "witnesses" / f"{name}.witness.json").scenario
    scenario = msgspec.structs.replace(scenario, steps_max=200)
    assert_right(Checker(scenario, cuda=triton_site()).run())


def test_the_command_to_repeat_a_run_names_the_device() -> None:
    where = site(pacing=Pacing.NATURAL)
    witness = load_witness(WITNESSES[0])
    found = replay(witness, times=1, command="racegate replay FILE", cuda=where)
    assert found.last.findings[0].replay == "racegate replay FILE"
    judge = Checker(checker("two-row-cycle").scenario, replay="racegate run FILE", cuda=where)
    assert judge.command(Schedule(), None) == "racegate run FILE --device cuda --pacing natural"
