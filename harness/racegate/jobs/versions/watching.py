"""Each new version of a package judged by a program that uses it, beside the version before it.

A version of a program is a target of the campaign store, as one of a fleet is: a dashboard shows
them side by side, and whoever shares the store judges none of them twice.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import msgspec

from racegate.explore.features.table import FeatureTotals
from racegate.history.exit_code import ExitCode
from racegate.history.finding import Benign, Verdict
from racegate.history.witness import SealedWitness
from racegate.interpose.errors import BadInput
from racegate.interpose.outcome import Ending
from racegate.jobs.stores.choice import store_of, stores_of_targets, subject_of
from racegate.jobs.stores.records import (
    STATE_SCHEMA,
    CampaignState,
    KeptFinding,
    ScenarioAside,
    Sighting,
)
from racegate.jobs.stores.witnesses import any_witness, found_at
from racegate.jobs.versions.cells import first_line
from racegate.jobs.versions.chosen import available
from racegate.jobs.versions.programs import word_of
from racegate.jobs.versions.watchlist import WatchedProgram
from racegate.targets.common.environment import Run, run_pip
from racegate.targets.common.setup.progress import Say
from racegate.targets.program.environment import environment_of_version, judge_in
from racegate.targets.program.result import ProgramResult


class VersionChange(StrEnum):
    """A version beside the last one before it that was watched.

    FIRST: there is none; SAME: it shows the same findings, or as before cannot be judged
    DIFFERS: findings are new or gone; STOPPED: it no longer runs; RUNS: it runs again
    """

    FIRST = "first"
    SAME = "same"
    DIFFERS = "differs"
    STOPPED = "no longer runs"
    RUNS = "runs again"


class WatchedVersion(msgspec.Struct, frozen=True, kw_only=True):
    """What a new version of a package came to.

    name: of the program; target: of the version in the store; package, version: what is installed
    said: the verdict on the program, or why there is none
    before: the version that it is compared with, empty if there is none
    change: what it is beside that version
    new, gone: signatures that the one has and the other has not; kept: those of both
    """

    name: str
    target: str
    package: str
    version: str
    said: str
    before: str
    change: VersionChange
    new: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()


class MissedProgram(msgspec.Struct, frozen=True, kw_only=True):
    """A program of which nothing could be looked up. name: of the program; why: the reason"""

    name: str
    why: str


class WatchObject(msgspec.Struct, frozen=True, kw_only=True):
    """A watch. store: where its state is, without secrets; programs: how many are watched
    versions: new ones, in their order; missed: programs whose versions are not known
    """

    schema: str
    store: str
    programs: int
    versions: tuple[WatchedVersion, ...]
    missed: tuple[MissedProgram, ...] = ()

    @property
    def exit_code(self) -> ExitCode:
        """1 a new finding, 4 a version that no longer runs or an unknown package, 0 otherwise."""
        if any(one.new for one in self.versions):
            return ExitCode.FINDING
        is_open = any(one.change is VersionChange.STOPPED for one in self.versions)
        return ExitCode.INCONCLUSIVE if is_open or self.missed else ExitCode.CLEAN


@dataclass(frozen=True, slots=True)
class JudgedVersion:
    """One version. state: as the store keeps it; witnesses: of what it shows, by signature"""

    state: CampaignState
    witnesses: dict[str, SealedWitness]


JudgesVersion = Callable[[WatchedProgram, str], JudgedVersion]


@dataclass(frozen=True, slots=True)
class VersionJudge:
    """Judges programs in environments of their own. scripts: the folder of the scripts

    environments: where they are kept; run: what runs pip
    """

    scripts: Path
    environments: Path
    run: Run = run_pip

    def __call__(self, watched: WatchedProgram, version: str) -> JudgedVersion:
        """What cannot be installed or judged has a reason in the place of a verdict."""
        began = time.time()
        try:
            python = environment_of_version(
                watched.package, version, watched.beside, self.environments, run=self.run
            )
            with tempfile.TemporaryDirectory() as folder:
                options = ("--explore", "--runs", str(watched.runs))
                where = ("--witness", str(Path(folder) / "found.json"))
                judged = judge_in(python, watched.program, *options, *where, folder=self.scripts)
                witnesses = [any_witness(path) for path in sorted(Path(folder).iterdir())]
        except BadInput as error:
            return JudgedVersion(_state(watched, version, began, why=first_line(str(error))), {})
        state = _state_of(judged.result, watched, version, began)
        found = {one.signature: found_at(one, 0, 0) for one in witnesses}
        return JudgedVersion(
            state, {name: one for name, one in found.items() if name in state.hits}
        )


def target_of(watched: WatchedProgram, version: str) -> str:
    """What the store calls a version of a program."""
    return f"{watched.name}-{version}"


def _state_of(
    result: ProgramResult, watched: WatchedProgram, version: str, began: float
) -> CampaignState:
    why = ""
    if result.ending is not Ending.FINISHED:
        why = f"{result.ending}: {first_line(result.message)}"
    found = [one.race.signature for one in result.findings if one.race is not None]
    found += [one.signature for one in result.findings if one.race is None]
    return _state(watched, version, began, why=why, result=result, found=found)


def _state(
    watched: WatchedProgram,
    version: str,
    began: float,
    *,
    why: str = "",
    result: ProgramResult | None = None,
    found: Sequence[str] = (),
) -> CampaignState:
    """As one scenario of a campaign. why: there is no verdict; empty if there is one"""
    now = time.time()
    verdict = Verdict.INCONCLUSIVE if why or result is None else result.verdict
    return CampaignState(
        schema=STATE_SCHEMA,
        seed=0,
        fault=None,
        holds_each=watched.runs,
        benign=Benign.PASS,
        done=1,
        schedules=0 if result is None else result.stats.schedules,
        verdicts={} if why else {verdict.value: 1},
        hits={} if why else dict.fromkeys(sorted(found), 1),
        exercised={},
        scenarios_with={},
        features=FeatureTotals().table(),
        seconds=now - began,
        set_aside=(ScenarioAside(scenario=0, why=why),) if why else (),
        seen={} if why else {name: Sighting(first=now, last=now) for name in sorted(found)},
        target=f"{watched.name} on {watched.package} {version}"
        + ("" if why or result is None else f": {word_of(result)}"),
        began=began,
    )


def watch_all(
    watched: Sequence[WatchedProgram], where: str, judge: JudgesVersion, *, say: Say
) -> Iterator[WatchedVersion | MissedProgram]:
    """Judges what is new of each program, and keeps it in a store. where: its path or URL

    Raises StoreError.
    """
    for one in watched:
        try:
            versions = available(one.package)
            known = _known(one, versions, where)
            todo = _todo(one, versions, known)
        except BadInput as error:
            yield MissedProgram(name=one.name, why=str(error))
            continue
        if not todo:
            say(f"{one.name}: no new version of {one.package}")
        for version in todo:
            say(f"{one.name}: {one.package} {version}")
            judged = judge(one, version)
            _keep(judged, store_where=where, target=target_of(one, version))
            known[version] = judged.state
            yield _compared(one, version, versions, known)


def all_watched(watched: Sequence[WatchedProgram], where: str) -> list[WatchedVersion]:
    """All that the store has of these programs, each version beside the one before it. Raises
    StoreError, and BadInput for a package that is not found.
    """
    found = []
    for one in watched:
        versions = available(one.package)
        known = _known(one, versions, where)
        found += [
            _compared(one, version, versions, known) for version in versions if version in known
        ]
    return found


def _known(
    watched: WatchedProgram, versions: Sequence[str], where: str
) -> dict[str, CampaignState]:
    """What the store has of a program, by version."""
    stores = stores_of_targets(where)
    targets = {version: target_of(watched, version) for version in versions}
    states = {
        version: stores[target].states() for version, target in targets.items() if target in stores
    }
    return {version: found[0] for version, found in states.items() if found}


def _todo(
    watched: WatchedProgram, versions: Sequence[str], known: dict[str, CampaignState]
) -> list[str]:
    """Versions that are to be judged, in their order. Raises BadInput."""
    if watched.since and watched.since not in versions:
        there = ", ".join(versions)
        raise BadInput(f"{watched.package} has no version {watched.since} here; it has {there}")
    first = watched.since or next((one for one in versions if one in known), versions[-1])
    return [one for one in versions[versions.index(first) :] if one not in known]


def _keep(judged: JudgedVersion, *, store_where: str, target: str) -> None:
    """The findings first: a version whose state is there is not judged again."""
    store = store_of(store_where, subject_of(target))
    for signature, witness in judged.witnesses.items():
        store.offer(KeptFinding(signature=signature, is_minimal=True, witness=witness))
    store.advance(judged.state)


def _compared(
    watched: WatchedProgram,
    version: str,
    versions: Sequence[str],
    known: dict[str, CampaignState],
) -> WatchedVersion:
    """A version beside the one before it."""
    earlier = [one for one in versions[: versions.index(version)] if one in known]
    before = earlier[-1] if earlier else ""
    ran = [one for one in earlier if not known[one].set_aside]
    now = known[version]
    there = set(known[ran[-1]].hits) if ran else set()
    has_verdict = not now.set_aside
    return WatchedVersion(
        name=watched.name,
        target=target_of(watched, version),
        package=watched.package,
        version=version,
        said=now.target.partition(": ")[2] if has_verdict else now.set_aside[0].why,
        before=before,
        change=_change(known.get(before), now, there),
        new=tuple(sorted(set(now.hits) - there)) if has_verdict else (),
        gone=tuple(sorted(there - set(now.hits))) if has_verdict else (),
        kept=tuple(sorted(there & set(now.hits))) if has_verdict else (),
    )


def _change(before: CampaignState | None, now: CampaignState, there: set[str]) -> VersionChange:
    """there: what the last version that ran shows"""
    if before is None:
        return VersionChange.STOPPED if now.set_aside else VersionChange.FIRST
    if now.set_aside:
        return VersionChange.SAME if before.set_aside else VersionChange.STOPPED
    if set(now.hits) != there:
        return VersionChange.DIFFERS
    return VersionChange.RUNS if before.set_aside else VersionChange.SAME
