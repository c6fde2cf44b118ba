"""The queue that a campaign is simulated as, where what comes of it can be worked out."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from campaign_model import Times, simulated
from racegate.jobs.fuzz import pause_after

TIMES = Times(
    tasks=(0.3,),
    delivery_s=0.0,
    events=(0.001,),
    looks={1: 0.0},
    takes_all=True,
    saves=(0.0,),
    syncs=(0.0,),
    alone_s=math.inf,
    pause_s=lambda took_s: 2.0,
)


@pytest.mark.parametrize("workers", [1, 2, 64])
def test_few_workers_are_always_at_work(workers: int) -> None:
    load = simulated(TIMES, workers=workers, scenarios=50 * workers)
    assert load.rate == pytest.approx(workers / 0.301, rel=0.03)
    assert load.workers_busy == pytest.approx(0.3 / 0.301, rel=0.03)


def test_a_driver_hears_no_more_than_it_can() -> None:
    load = simulated(TIMES, workers=600, scenarios=8_000)
    assert load.rate == pytest.approx(1000, rel=0.02)
    assert load.driver_busy == pytest.approx(1, rel=0.1)
    assert load.workers_busy == pytest.approx(0.5, rel=0.1)


def test_one_answer_a_look_costs_a_look_for_each() -> None:
    one = replace(TIMES, looks={1: 0.0, 513: 0.512}, takes_all=False)
    load = simulated(one, workers=513, scenarios=2_000)
    assert load.rate == pytest.approx(1 / 0.513, rel=0.02)
    assert one.look_s(257) == pytest.approx(0.256)
    assert one.look_s(1025) == pytest.approx(1.024)


def test_a_store_answers_one_after_the_other() -> None:
    """Every driver asks it every 2 seconds; where that is more than it can all of them wait."""
    shared = replace(TIMES, syncs=(0.1,))
    few = simulated(shared, workers=2, campaigns=4, scenarios=600)
    assert few.syncs_per_second == pytest.approx(2, rel=0.1)
    assert few.store_busy == pytest.approx(0.2, rel=0.1)
    many = simulated(shared, workers=2, campaigns=80, scenarios=2_000)
    assert many.syncs_per_second == pytest.approx(10, rel=0.1)
    assert many.store_busy == pytest.approx(1, rel=0.05)
    assert many.rate < 0.5 * 20 * few.rate
    patient = replace(shared, pause_s=pause_after)
    assert simulated(patient, workers=2, campaigns=80, scenarios=2_000).rate > 2 * many.rate


def test_what_a_store_does_for_all_at_once_holds_nobody_up() -> None:
    shared = replace(TIMES, syncs=(0.02,), alone_s=0.001)
    many = simulated(shared, workers=2, campaigns=40, scenarios=1_500)
    assert many.syncs_per_second == pytest.approx(20, rel=0.1)
    assert many.store_busy == pytest.approx(0.02, rel=0.1)
    assert many.workers_busy > 0.95
