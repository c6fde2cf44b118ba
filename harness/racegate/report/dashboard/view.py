"""The view: campaigns and findings of a store, as one object that page, JSON and metrics share."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from racegate.explore.features.summary import summarise
from racegate.history.outcome import SCHEMA
from racegate.history.witness import Witness
from racegate.jobs.findability import CampaignFinding, listed, seen_in
from racegate.jobs.fleet.matrix import TargetMatrix
from racegate.jobs.stores.records import CampaignState, KeptFinding, Sighting
from racegate.jobs.stores.witnesses import requests_in, scenario_in
from racegate.report.objects import CampaignView, DashboardView, FindingView


def view_of(
    store: str,
    states: Iterable[CampaignState],
    findings: Iterable[KeptFinding],
    *,
    read_at: float,
    problem: str | None = None,
    targets: TargetMatrix | None = None,
) -> DashboardView:
    """What a store said."""
    known, kept = list(states), {one.signature: one for one in findings}
    return DashboardView(
        schema=SCHEMA,
        store=store,
        read_at=read_at,
        problem=problem,
        campaigns=tuple(_campaign(state) for state in known),
        findings=tuple(
            _finding(kept[one.signature], one, seen_in(known, one.signature))
            for one in listed(kept.values(), known)
        ),
        targets=targets,
    )


def name_of(signature: str) -> str:
    """A signature in an address: its letters, and what tells it from others with the same."""
    plain = "".join(c if c.isascii() and c.isalnum() else "-" for c in signature)[:60].strip("-")
    return f"{plain}-{hashlib.blake2b(signature.encode(), digest_size=4).hexdigest()}"


def _campaign(state: CampaignState) -> CampaignView:
    reached = summarise(state.features) if state.fault is None else None
    possible = 0 if reached is None else reached.possible
    missing = () if reached is None else reached.missing
    return CampaignView(
        seed=state.seed,
        fault=state.fault,
        scenarios=state.done,
        schedules=state.schedules,
        seconds=state.seconds,
        schedules_per_second=state.schedules / state.seconds if state.seconds else 0.0,
        verdicts=state.verdicts,
        pairs_occurred=possible - len(missing),
        pairs_possible=possible,
        pairs_missing=missing,
        selfcheck=state.selfcheck,
        set_aside=state.set_aside,
        workers=state.workers,
    )


def _finding(kept: KeptFinding, entry: CampaignFinding, seen: Sighting | None) -> FindingView:
    witness, name = kept.witness, name_of(kept.signature)
    scenario = scenario_in(witness)
    file = f"{name}.witness.json"
    return FindingView(
        signature=kept.signature,
        name=name,
        file=file,
        title=(scenario is not None and scenario.title) or witness.title,
        verdict=witness.verdict.value,
        seed=kept.seed,
        scenario=kept.index,
        findability=entry.findability,
        status=entry.status,
        seen=seen,
        fault=witness.fault if isinstance(witness, Witness) else None,
        holds=tuple(witness.holds),
        requests=requests_in(witness),
        is_minimal=kept.is_minimal,
        replay=f"racegate replay {file}",
    )
