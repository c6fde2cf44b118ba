"""A seed shows the same with any number of workers, in whatever order they answer and whichever of
them are lost. What scenarios show is told here; all between them and the folder is real.
"""

from __future__ import annotations

import json
import random
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
from racegate.jobs.generated import CampaignSpec, GeneratedFinding, Report
from racegate.jobs.pools.driver import DrivenPool
from racegate.jobs.stores.records import WorkerState
from shuffled import Shuffled
from stored import with_subject

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


def small(
    found: GeneratedFinding, fault: object, *, on_run: Callable[[int], None]
) -> GeneratedFinding:
    """In place of minimising."""
    return msgspec.structs.replace(found, is_minimal=True, runs=1)


def found_in(index: int, signature: str) -> GeneratedFinding:
    scenario = msgspec.structs.replace(WITNESS.scenario, name=f"generated-5-{index}")
    witness = msgspec.structs.replace(
        with_subject(WITNESS, seed=5), scenario=scenario, signature=signature
    )
    return GeneratedFinding(
        signature=signature, index=index, witness=witness, runs=0, is_minimal=False
    )


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
    assert list(state.hits) == sorted(state.hits)
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
