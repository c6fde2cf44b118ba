"""What a run of a fleet came to, and what it ends with."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from racegate.history.breakage import Breakage
from racegate.history.exit_code import ExitCode
from racegate.history.outcome import SCHEMA
from racegate.jobs.fleet.matrix import TargetMatrix, matrix_of
from racegate.jobs.fleet.run import FleetRun, TargetCampaign
from racegate.jobs.generated import NOT_RUN, NOTHING_HAPPENED
from racegate.jobs.stores.folder import FolderStore
from racegate.jobs.stores.records import CampaignState, code_of


class MissedTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A target that was not judged, or not to the end. target: its name; why: in words"""

    target: str
    why: str


class FleetObject(msgspec.Struct, frozen=True, kw_only=True):
    """A fleet as far as it got.

    exit_code: what it ends with; matrix: what all its runs have shown
    missed: targets that no worker can run, and those that were given up
    breakages: errors of the harness in this run, and scenarios that were set aside in it
    losses: workers that were lost, and why, while others did what they were doing
    """

    schema: str
    exit_code: ExitCode
    seed: int
    matrix: TargetMatrix
    missed: tuple[MissedTarget, ...]
    breakages: tuple[Breakage, ...]
    losses: tuple[str, ...]


def outcome_of(run: FleetRun, seed: int, states: Mapping[str, CampaignState]) -> FleetObject:
    """After a run: what each target's folder has."""
    missed = []
    for name, each in run.targets.items():
        if why := each.why or run.plan.lacking(name):
            missed.append(MissedTarget(target=name, why=why))
    asides = [aside for each in run.targets.values() for aside in each.campaign.set_aside]
    breakages = (*run.breakages, *asides)
    found = {
        name: ([states[name]], FolderStore(each.campaign.folder).findings())
        for name, each in run.targets.items()
    }
    codes = {_code_of(each, states[name]) for name, each in run.targets.items()}
    codes |= {ExitCode.BROKEN_HARNESS} if breakages else set()
    codes |= {ExitCode.INCONCLUSIVE} if missed else set()
    order = (ExitCode.BROKEN_HARNESS, ExitCode.FINDING, ExitCode.INCONCLUSIVE, ExitCode.CLEAN)
    return FleetObject(
        schema=SCHEMA,
        exit_code=next(code for code in order if code in codes),
        seed=seed,
        matrix=matrix_of(found),
        missed=tuple(missed),
        breakages=breakages,
        losses=tuple(run.losses),
    )


def _code_of(target: TargetCampaign, state: CampaignState) -> ExitCode:
    """Of one target, as a campaign on it alone would end."""
    if not target.campaign.selfcheck.is_sound:
        return ExitCode.BROKEN_HARNESS
    return code_of(state, excused=(NOT_RUN, NOTHING_HAPPENED))
