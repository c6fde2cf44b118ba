"""A/B waves on CudaDevice with natural pacing, on a driver without a GPU: in whatever legal order
things land, an engine without a fault is right; one whose counts land late or early is not.
"""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from numpy_backend import numpy_backend
from racegate.device.cuda.pacing import Pacing
from racegate.device.cuda.site import CudaSite
from racegate.history.replayed import ReplayOutcome
from racegate.measure.ab.held import run_held
from racegate.measure.ab.waves import (
    CudaWaveSite,
    TruthWave,
    VirtualWaveSite,
    rehearse,
    run_arm,
    run_truth,
)
from racegate.measure.ab.workload import ARMS, AbSpec, Arm
from racegate.scenario.settings import CacheMode
from support import SCENARIOS
from sync_driver import SyncDriver

PLAN = AbSpec(
    device="cuda", generations=16, wave=16, rows=6, max_tokens=24, vocab_size=30, checked=4
)


def place(seed: int | None = None) -> CudaWaveSite:
    random = None if seed is None else Random(seed)
    driver = SyncDriver(numpy_backend(), random=random)
    return CudaWaveSite(CudaSite(driver, pacing=Pacing.NATURAL))


@pytest.fixture(scope="module")
def truth() -> TruthWave:
    return run_truth(place(1), PLAN, 0, {})


def test_the_truth_is_that_of_the_virtual_device(truth: TruthWave) -> None:
    assert truth.tokens == run_truth(VirtualWaveSite(), PLAN, 0, {}).tokens
    assert truth.checked == 4


@pytest.mark.parametrize("arm", [arm for arm in ARMS if arm.fault is None])
@pytest.mark.parametrize("seed", [None, 2, 3])
def test_without_a_fault_nothing_is_wrong(arm: Arm, seed: int | None, truth: TruthWave) -> None:
    found = run_arm(place(seed), PLAN, arm, truth, {})
    assert (found.wrong, found.stopped, found.lengths.count(0)) == (0, None, 0)


def test_counts_that_land_at_once_spoil_the_double_remap_alone(truth: TruthWave) -> None:
    assert run_arm(place(), PLAN, Arm.DOUBLE_REMAP, truth, {}).wrong > 0
    assert run_arm(place(), PLAN, Arm.COPY_AFTER_ROW_MOVE, truth, {}).wrong == 0


class Lazy(Random):
    """Runs nothing before it is waited for."""

    def choice(self, options: Any) -> Any:
        return 0 if isinstance(options, tuple) else super().choice(options)


def lazy_place() -> CudaWaveSite:
    driver = SyncDriver(numpy_backend(), random=Lazy(1))
    return CudaWaveSite(CudaSite(driver, pacing=Pacing.NATURAL))


def test_counts_that_land_late_spoil_rows_that_have_moved(truth: TruthWave) -> None:
    wrong = {arm: run_arm(lazy_place(), PLAN, arm, truth, {}).wrong for arm in ARMS}
    assert wrong.pop(Arm.COPY_AFTER_ROW_MOVE) > 0
    assert set(wrong.values()) == {0}


def test_without_prefix_caching_only_few_rows_ask_the_host() -> None:
    # A request whose prompt has just ended has to move, to where another accepted drafts: rare.
    plan = msgspec.structs.replace(
        PLAN, generations=80, wave=80, rows=8, max_tokens=32, cache_mode=CacheMode.NONE
    )
    truth = run_truth(lazy_place(), plan, 0, {})
    found = run_arm(lazy_place(), plan, Arm.COPY_AFTER_ROW_MOVE, truth, {})
    assert 0 < found.wrong < 8
    assert run_arm(lazy_place(), plan, Arm.FAULT_FREE, truth, {}).wrong == 0


def test_a_rehearsal_leaves_the_device_as_it_was(truth: TruthWave) -> None:
    where = place()
    for arm in (Arm.TRUTH, Arm.FAULT_FREE):
        rehearse(where, PLAN, arm)
    assert run_arm(where, PLAN, Arm.FAULT_FREE, truth, {}).wrong == 0


@pytest.mark.parametrize("fault", ["accepted-copy-after-row-move", "accepted-double-remap"])
def test_the_held_run_shows_the_fault_at_once(fault: str) -> None:
    site = CudaSite(SyncDriver(numpy_backend(), random=Random(4)))
    held = run_held(fault, SCENARIOS / "witnesses", cuda=site)
    assert (held.outcome, held.device) == (ReplayOutcome.REPRODUCED, "cuda")
