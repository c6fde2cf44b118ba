"""A store's content made up for tests of what shows it."""

from __future__ import annotations

import msgspec

from pictured import path_of
from racegate.check.selfcheck import SelfCheck
from racegate.explore.features.table import FeatureTotals
from racegate.history.finding import Benign
from racegate.history.witness import Witness, load_witness
from racegate.jobs.stores.records import (
    STATE_SCHEMA,
    CampaignMoment,
    CampaignState,
    KeptFinding,
    ScenarioAside,
    Sighting,
    WorkerRecord,
    WorkerState,
)

FAULT = "slot-vs-row-index"
SEEN = Sighting(first=1000.0, last=2000.0)
SOUND = SelfCheck(canaries=6, canaries_found=6, double_runs=2)
WITNESS = load_witness(path_of(FAULT))


class MadeStore:
    """A store in memory. error: what it says instead of anything"""

    def __init__(self, *findings: KeptFinding, states: tuple[CampaignState, ...] = ()) -> None:
        self.name = "redis://10.0.0.1:6379"
        self.kept = list(findings)
        self.known = list(states)
        self.error: Exception | None = None

    def findings(self) -> list[KeptFinding]:
        """All of them."""
        if self.error is not None:
            raise self.error
        return list(self.kept)

    def states(self) -> list[CampaignState]:
        """Of all campaigns."""
        return list(self.known)


def with_subject(witness: Witness, **fields: object) -> Witness:
    """A witness of our own engine with other fields of its subject."""
    subject = msgspec.structs.replace(witness.subject, **fields)
    return msgspec.structs.replace(witness, subject=subject)


def finding(
    signature: str = "divergence/inputs/x", *, index: int = 4, title: str = ""
) -> KeptFinding:
    """A finding of seed 1 with the witness of a seeded fault."""
    scenario = msgspec.structs.replace(
        WITNESS.scenario, name=f"generated-1-{index}", title=title or WITNESS.scenario.title
    )
    witness = with_subject(WITNESS, seed=1)
    witness = msgspec.structs.replace(witness, scenario=scenario, signature=signature)
    return KeptFinding(signature=signature, is_minimal=True, witness=witness)


def state(
    seed: int = 1,
    *,
    fault: str | None = None,
    hits: dict[str, int] | None = None,
    aside: str = "killed by signal 9",
    selfcheck: SelfCheck = SOUND,
    seen: Sighting = SEEN,
    done: int = 100,
    began: float = 0.0,
    moments: tuple[CampaignMoment, ...] = (),
    place: str = "node-1, process 7",
) -> CampaignState:
    """A campaign of 100 scenarios with two workers, one of which is lost."""
    features = FeatureTotals()
    features.add(("depth = 1", "k = 0"))
    return CampaignState(
        schema=STATE_SCHEMA,
        seed=seed,
        fault=fault,
        holds_each=4,
        benign=Benign.PASS,
        done=done,
        schedules=1500,
        verdicts={"PROVED": 97, "DIVERGENT": 3},
        hits=hits or {},
        exercised={},
        scenarios_with={},
        features=features.table(),
        seconds=30.0,
        set_aside=(ScenarioAside(scenario=7, why=aside),),
        selfcheck=selfcheck,
        seen=dict.fromkeys(hits or {}, seen),
        began=began,
        moments=moments,
        workers=(
            worker(0, WorkerState.WORKING, place, heard_at=1990.0),
            worker(1, WorkerState.LOST, place, heard_at=1700.0),
        ),
    )


def worker(number: int, state: WorkerState, place: str, *, heard_at: float) -> WorkerRecord:
    """One that had looked at scenario 99."""
    return WorkerRecord(
        number=number, place=place, state=state, did="scenario 99", heard_at=heard_at
    )
