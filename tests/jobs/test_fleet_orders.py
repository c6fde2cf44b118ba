"""What a fleet finds does not depend on how many workers there are, in what order they answer and
which of them are lost; who lacks a GPU gets nothing that needs one. What targets show is told here.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from racegate.history.exit_code import ExitCode
from racegate.jobs.campaign import Campaign
from racegate.jobs.fleet.outcome import FleetObject, outcome_of
from racegate.jobs.fleet.own import FleetAnswers
from racegate.jobs.fleet.run import UNANSWERED_MAX, FleetRun, TargetCampaign
from racegate.jobs.fleet.targets import DeviceTarget, Target, TargetDevice
from racegate.jobs.fleet.worker import FleetSpec, FleetWorker
from racegate.jobs.fuzz import Bounds
from racegate.jobs.generated import CampaignSpec, drawn
from racegate.jobs.pools.choice import WorkerPlace
from racegate.jobs.pools.driver import DrivenPool
from racegate.scenario.spec import OwnScenario
from shown_results import shown_by
from shuffled import Shuffled

SCENARIOS = 9
SILENT = "silent"
VIRTUAL = DeviceTarget(name="here", device=TargetDevice.VIRTUAL)
CARD = DeviceTarget(name="card", device=TargetDevice.GPU)
SHOWN = st.lists(
    st.sampled_from([None, None, "a/x", "b/y", SILENT]), min_size=SCENARIOS, max_size=SCENARIOS
)
Told = dict[str, list[str | None]]


class ToldWorker(FleetWorker):
    """told: by target and index, the signature that is shown, or that there is no answer"""

    told: Told

    def _asked(self, target: Target, scenarios: Sequence[OwnScenario]) -> FleetAnswers:
        assert target is not CARD or self._gpu is not None
        said = {one.name: (one, self.told[target.name][_index(one)]) for one in scenarios}
        shown = {
            name: shown_by(scenario, signature)
            for name, (scenario, signature) in said.items()
            if signature != SILENT
        }
        return FleetAnswers(shown=shown, why="it is silent")


def _index(scenario: OwnScenario) -> int:
    return int(scenario.name.rpartition("-")[2])


def after(told: Told, workers: int, gpus: int, luck: random.Random) -> FleetObject:
    """A fleet of two targets."""
    spec = FleetSpec(seed=5, targets=(VIRTUAL, CARD), draw=drawn, timeout_s=0)
    pool = DrivenPool(Shuffled(luck), losses_max=2)
    with TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr("racegate.jobs.fleet.run.pool_of", lambda *given, **more: pool)
        patch.setattr("racegate.jobs.fleet.run.FleetWorker", ToldWorker)
        patch.setattr(ToldWorker, "told", told, raising=False)
        targets = [
            TargetCampaign(one, Campaign(CampaignSpec(seed=5), Path(name, one.name)))
            for one in spec.targets
        ]
        run = FleetRun(spec, targets, Bounds(scenarios=SCENARIOS))
        states = run.run(workers, WorkerPlace(gpus=gpus))
        assert run.breakages == []
        return outcome_of(run, 5, states)


def expected(shows: Sequence[str | None]) -> tuple[int, dict[str, tuple[int, int]]]:
    """How many scenarios are counted, and hits and first scenario of each signature."""
    done = len(shows)
    for index in range(UNANSWERED_MAX, len(shows) + 1):
        if set(shows[index - UNANSWERED_MAX : index]) == {SILENT}:
            done = index
            break
    counted = list(shows[:done])
    signatures = sorted({one for one in counted if one not in (None, SILENT)})
    return done, {one: (counted.count(one), counted.index(one)) for one in signatures}


def found(outcome: FleetObject, target: str) -> tuple[int, dict[str, Any]]:
    (column,) = [one for one in outcome.matrix.targets if one.name == target]
    cells = {
        row.signature: (cell.hits, cell.scenario)
        for row in outcome.matrix.rows
        for cell in row.cells
        if cell.target == target
    }
    return column.scenarios, cells


@pytest.mark.parametrize("workers", [2, 5])
def test_workers_orders_and_losses_change_nothing(workers: int) -> None:
    @settings(max_examples=5, deadline=None)
    @given(here=SHOWN, card=SHOWN, data=st.data(), luck=st.randoms(use_true_random=False))
    def law(
        here: list[str | None], card: list[str | None], data: st.DataObject, luck: random.Random
    ) -> None:
        gpus = data.draw(st.integers(0, workers))
        outcome = after({"here": here, "card": card}, workers, gpus, luck)
        assert found(outcome, "here") == expected(here)
        assert found(outcome, "card") == (expected(card) if gpus else (0, {}))
        missed = {one.target for one in outcome.missed}
        given_up = {
            name
            for name, shows in (("here", here), ("card", card))
            if f"{SILENT * UNANSWERED_MAX}" in "".join(one or "-" for one in shows)
        }
        assert missed == (given_up if gpus else given_up | {"card"})
        is_broken = SILENT in here[: expected(here)[0]] or (gpus and SILENT in card)
        is_found = outcome.matrix.rows != ()
        code = ExitCode.CLEAN if gpus else ExitCode.INCONCLUSIVE
        code = ExitCode.FINDING if is_found else code
        assert outcome.exit_code is (ExitCode.BROKEN_HARNESS if is_broken else code)

    law()
