"""A seed shows the same with any number of workers, in whatever order they answer and whichever of
them are lost. What scenarios show is told here; all between them and the folder is real.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from racegate.check.selfcheck import SelfCheck
from racegate.history.witness import load_witness
from racegate.jobs.campaign import Campaign
from racegate.jobs.fuzz import Bounds, fuzz
from racegate.jobs.generated import CampaignSpec, Found, Report, ScenarioWorker
from racegate.jobs.pools.driver import DrivenPool, GoneError, Ready, said_of
from racegate.jobs.pools.pool import Task
from racegate.jobs.stores.records import WorkerState

SPEC = CampaignSpec(seed=5)
ROOT = Path(__file__).parents[2]
WITNESS = load_witness(ROOT / "scenarios" / "witnesses" / "correction-partial-fields.witness.json")
SCENARIOS = 8


def told(shows: Sequence[str | None]) -> Callable[..., Report]:
    """In place of looking at a scenario. shows: by scenario, the signature that it shows"""

    def look(spec: CampaignSpec, index: int, fault: object, seen: set[str]) -> Report:
        signature = shows[index]
        is_new = signature is not None and signature not in seen
        return Report(
            index=index,
            schedules=1,
            verdict="PROVED" if signature is None else "DIVERGENT",
            exercised={"overlapped_ops": index},
            settings=(),
            features=(),
            signature=signature,
            found=found_in(index, signature) if is_new and signature else None,
            selfcheck=SelfCheck(),
        )

    return look


def small(found: Found, fault: object) -> Found:
    """In place of minimising."""
    return msgspec.structs.replace(found, is_minimal=True, runs=1)


def found_in(index: int, signature: str) -> Found:
    scenario = msgspec.structs.replace(WITNESS.scenario, name=f"generated-5-{index}")
    witness = msgspec.structs.replace(WITNESS, scenario=scenario, seed=5, signature=signature)
    return Found(signature=signature, index=index, witness=witness, runs=0, is_minimal=False)


class Handle:
    """See driver.Handle. losses: workers lost with a task, at most three, or at their end, at most
    two
    """

    def __init__(self, worker: ScenarioWorker, luck: random.Random, losses: Counter[str]) -> None:
        self._worker = worker
        self._luck = luck
        self._losses = losses
        self._task: Task[Any] | None = None
        self._is_ready = False

    def send(self, task: Task[Any] | None) -> None:
        self._task = task

    def hear(self) -> object:
        task = self._task
        if not self._is_ready:
            self._is_ready = True
            return Ready()
        self._live_on("its end" if task is None else task.name, most=2 if task is None else 3)
        if task is None:
            return said_of(self._worker.end)
        return said_of(lambda: self._worker.work(task.content))

    def _live_on(self, doing: str, *, most: int) -> None:
        if self._losses[doing] < most and self._luck.random() < 0.2:
            self._losses[doing] += 1
            raise GoneError("was unplugged")

    def kill(self) -> None:
        pass

    def close(self) -> None:
        pass


class Shuffled:
    """A transport whose workers answer in any order."""

    def __init__(self, luck: random.Random) -> None:
        self._luck = luck
        self._losses: Counter[str] = Counter()

    def open(self, make: Callable[[int], Any], number: int) -> Handle:
        return Handle(make(number), self._luck, self._losses)

    def has_room(self) -> bool:
        return True

    def wait(self, handles: Sequence[Handle], timeout_s: float) -> Sequence[Handle]:
        return [self._luck.choice(handles)]

    def close(self) -> None:
        pass


def known_after(shows: Sequence[str | None], workers: int, luck: random.Random) -> dict[str, Any]:
    """What a campaign leaves in its folder."""
    pool = DrivenPool(Shuffled(luck), losses_max=2)
    with TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        folder = Path(name)
        patch.setattr("racegate.jobs.fuzz.pool_of", lambda *given, **more: pool)
        patch.setattr("racegate.jobs.generated.plant_canaries", lambda look: SelfCheck())
        patch.setattr("racegate.jobs.generated.look_at", told(shows))
        patch.setattr("racegate.jobs.generated.minimised", small)
        campaign = Campaign(SPEC, folder)
        state = fuzz(campaign, Bounds(scenarios=SCENARIOS), workers=workers)
        assert (campaign.breakages, campaign.set_aside, campaign.unchecked) == ([], [], set())
        witnesses = {
            path.name: json.loads(path.read_text())["scenario"]["name"]
            for path in folder.glob("*.witness.json")
        }
    assert {name: at.first <= at.last for name, at in state.seen.items()} == dict.fromkeys(
        state.hits, True
    )
    assert {one.state for one in state.workers} <= {WorkerState.ENDED, WorkerState.LOST}
    counts = {name: getattr(state, name) for name in ("done", "schedules", "hits", "verdicts")}
    return {"witnesses": witnesses, **counts}


SHOWN = st.lists(
    st.sampled_from([None, "a/x", "b/y", "c/z"]), min_size=SCENARIOS, max_size=SCENARIOS
)


@pytest.mark.parametrize("workers", [1, 2, 8])
def test_workers_orders_and_losses_change_nothing(workers: int) -> None:
    @settings(max_examples=12, deadline=None)
    @given(shows=SHOWN, luck=st.randoms(use_true_random=False))
    def law(shows: list[str | None], luck: random.Random) -> None:
        signatures = sorted(filter(None, set(shows)))
        expected = {
            f"{name.replace('/', '-')}.witness.json": f"generated-5-{shows.index(name)}"
            for name in signatures
        }
        found = known_after(shows, workers, luck)
        assert found["witnesses"] == expected
        assert found["hits"] == {name: shows.count(name) for name in signatures}
        assert found["done"] == found["schedules"] == sum(found["verdicts"].values()) == SCENARIOS

    law()
