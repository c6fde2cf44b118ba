"""A campaign's folder: witnesses, and how far it is. A second run with it goes on from there.

What was found is written as it was found (`*.raw.witness.json`), and replaced by its minimal form:
a kill in between loses nothing, and the next run minimises it.

A finding is known once, by its signature; what is reported for one is the scenario with the lowest
index that showed it. A store that campaigns share hears of all that this folder gets: what another
campaign has found is known here too, and a campaign goes on where any machine left it.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from racegate.check.selfcheck import SelfCheck, together
from racegate.explore.features.table import FeatureTotals
from racegate.history.breakage import Breakage
from racegate.history.finding import Benign
from racegate.history.witness import SealedWitness, WitnessError
from racegate.jobs.generated import CampaignSpec, GeneratedFinding, Report
from racegate.jobs.stores.folder import RAW, STATE_FILE, FolderStore, load_state
from racegate.jobs.stores.link import StoreLink
from racegate.jobs.stores.records import (
    STATE_SCHEMA,
    CampaignMoment,
    CampaignState,
    KeptFinding,
    ScenarioAside,
    Sighting,
    WorkerRecord,
    WorkerState,
    encoded_state,
    further_of,
    with_moment,
)
from racegate.jobs.stores.store import StoreError
from racegate.jobs.stores.witnesses import any_witness, drawn_at
from racegate.scenario.errors import BadInputError
from racegate.scenario.untrusted.files import check_writable, write_whole


class CampaignError(BadInputError):
    """A folder that belongs to another campaign, or cannot be used."""


class CampaignProgress(msgspec.Struct, frozen=True, kw_only=True):
    """What to show while it runs. last_new_s: since the last new finding"""

    scenarios: int
    schedules: int
    seconds: float
    signatures: int
    last_new_s: float | None

    @property
    def schedules_per_second(self) -> float:
        """Of all runs of the campaign together."""
        return self.schedules / self.seconds if self.seconds else 0.0


@dataclass(slots=True)
class _Totals:
    """Of all runs of the campaign. seconds: of those before this one"""

    done: int = 0
    schedules: int = 0
    seconds: float = 0.0
    verdicts: Counter[str] = field(default_factory=Counter)
    hits: Counter[str] = field(default_factory=Counter)
    seen: dict[str, Sighting] = field(default_factory=dict)
    exercised: Counter[str] = field(default_factory=Counter)
    scenarios_with: Counter[str] = field(default_factory=Counter)
    features: FeatureTotals = field(default_factory=FeatureTotals)
    set_aside: list[ScenarioAside] = field(default_factory=list)
    selfcheck: SelfCheck = field(default_factory=SelfCheck)
    moments: tuple[CampaignMoment, ...] = ()

    def note(self, now: float) -> None:
        """How far the campaign is now, if it is further."""
        if not self.moments or self.done > self.moments[-1].done:
            self.moments = with_moment(self.moments, CampaignMoment(at=now, done=self.done))

    def add(self, report: Report) -> None:
        self.done += 1
        self.schedules += report.schedules
        self.verdicts[report.verdict] += 1
        if report.signature is not None:
            self._hit(report.signature, time.time())
        self.exercised.update(report.exercised)
        self.scenarios_with.update(name for name, count in report.exercised.items() if count)
        self.scenarios_with.update(report.settings)
        if report.features:
            self.features.add(report.features)

    def _hit(self, signature: str, now: float) -> None:
        self.hits[signature] += 1
        before = self.seen.get(signature)
        self.seen[signature] = Sighting(first=before.first if before else now, last=now)


class Campaign:
    """What is known of a campaign.

    new: findings of this run, by signature; known: signatures from before, and of other campaigns
    to_minimise: findings that are written as they were found, the next first
    selfcheck: of this run; unchecked: workers that ended without their last canaries
    losses: workers that were lost, and why, while others did what they were doing
    workers: of this run, by number
    breakages: errors of the harness in this run, and set_aside: those that do not end it
    stop: what ended it, if it was told to stop
    shared: the way to a store that other campaigns use too

    Raises CampaignError, and StoreError of a shared store.
    """

    def __init__(self, spec: CampaignSpec, folder: Path, shared: StoreLink | None = None) -> None:
        self.spec = spec
        self.folder = folder
        self.shared = shared
        self.known, raw = _known(folder)
        self.new: dict[str, GeneratedFinding] = {}
        self.to_minimise: deque[GeneratedFinding] = deque()
        self.breakages: list[Breakage] = []
        self.set_aside: list[Breakage] = []
        self.losses: list[str] = []
        self.workers: dict[int, WorkerRecord] = {}
        self.selfcheck = SelfCheck()
        self.unchecked: set[int] = set()
        self.stop: KeyboardInterrupt | None = None
        self._began = time.time()
        self._store = FolderStore(folder)
        state = self._before()
        if shared is not None:
            state = self._join(shared, state)
            _, raw = _known(folder)
        self._totals = _Totals() if state is None else self._totals_of(state)
        for found in raw:
            # What is not counted yet is looked at again, and then it may be an earlier scenario's.
            if found.index < self.done and found.signature not in self.known:
                self._open(found)

    def _before(self) -> CampaignState | None:
        path = self.folder / STATE_FILE
        if not path.exists():
            return None
        try:
            state = load_state(path)
        except StoreError as error:
            raise CampaignError(
                f"{error}: name another folder, the witnesses in this one stay good"
            ) from error
        if _decides(state) != _decides(self.spec):
            raise CampaignError(
                f"{path}: of a campaign with {_decides(state)}; use the same or another folder"
            )
        return state

    def _join(self, shared: StoreLink, state: CampaignState | None) -> CampaignState | None:
        """Takes what a shared store has into the folder, as far as it is of this campaign, and will
        bring over what the store lacks; how far the campaign is anywhere.
        """
        found, there = shared.begin(self.spec.seed)
        mine = self._store.findings()
        for finding in found:
            if finding.seed == self.spec.seed:
                self._store.offer(finding)
            if finding.seed != self.spec.seed or finding.is_minimal:
                self.known.add(finding.signature)
        shared.offer_later(mine)
        if there is None:
            return state
        if _decides(there) != _decides(self.spec):
            raise CampaignError(
                f"{shared.name}: its campaign with this seed has {_decides(there)}: use the same, "
                "or another seed"
            )
        return there if state is None else further_of(state, there)

    def _totals_of(self, state: CampaignState) -> _Totals:
        features = FeatureTotals()
        try:
            features.add_table(state.features)
        except ValueError as error:
            raise CampaignError(
                f"{self.folder / STATE_FILE}: {error}; use another folder"
            ) from error
        return _Totals(
            done=state.done,
            schedules=state.schedules,
            seconds=state.seconds,
            verdicts=Counter(state.verdicts),
            hits=Counter(state.hits),
            seen=dict(state.seen),
            exercised=Counter(state.exercised),
            scenarios_with=Counter(state.scenarios_with),
            features=features,
            set_aside=list(state.set_aside),
            selfcheck=state.selfcheck,
            moments=state.moments,
        )

    @property
    def done(self) -> int:
        """Scenarios looked at, in all runs."""
        return self._totals.done

    def add(self, report: Report) -> bool:
        """Counts the next scenario, and keeps a new finding; whether it is one. In their order: the
        first scenario that shows a signature is the one with the lowest index.
        """
        found = report.found
        # Before it is counted: then it is not looked at again.
        is_new = found is not None and not self._knows(found.signature) and self._is_ours(found)
        if found is not None and is_new:
            self._open(found)
        self.check(report.selfcheck)
        self.breakages += report.breakages
        if not report.breakages:
            self._totals.add(report)
        return is_new

    def put_aside(self, task: int | GeneratedFinding, breakage: Breakage) -> None:
        """Goes on without a scenario, or without the minimal form of a finding, whose next run may
        have more luck.
        """
        self.set_aside.append(breakage)
        if isinstance(task, int):
            self._totals.done += 1
            self._totals.set_aside.append(ScenarioAside(scenario=task, why=breakage.error))

    def heard(self, report: Report) -> None:
        """Writes what a scenario showed, before those that come before it are done."""
        found = report.found
        if found is None or self._knows(found.signature):
            return
        with suppress(OSError):  # `add` says so
            self._store.offer(_as_kept(found))

    def minimised(self, signature: str, small: GeneratedFinding) -> None:
        """Writes the minimal form of a finding in place of what was found. Minimal, a failure may
        go by another name.
        """
        self.new[signature] = small
        kept = KeptFinding(signature=signature, is_minimal=True, witness=small.witness)
        self._store.offer(kept)
        if self.shared is not None:
            self.shared.offer(kept)

    def _is_ours(self, found: GeneratedFinding) -> bool:
        """Writes a finding; whether no other campaign had it before."""
        kept = _as_kept(found)
        self._store.offer(kept)
        if self.shared is None or self.shared.offer(kept).seed == self.spec.seed:
            return True
        self.known.add(found.signature)
        return False

    def _open(self, found: GeneratedFinding) -> None:
        self.new[found.signature] = found
        self.to_minimise.append(found)

    def _knows(self, signature: str) -> bool:
        return signature in self.known or signature in self.new

    def check(self, selfcheck: SelfCheck) -> None:
        """Counts what a worker found out about the harness."""
        self.selfcheck = together((self.selfcheck, selfcheck))
        self._totals.selfcheck = together((self._totals.selfcheck, selfcheck))

    def hear_of(self, worker: int, state: WorkerState, did: str, *, place: str = "") -> None:
        """Notes what becomes of a worker. place: if it says where it is"""
        before = self.workers.get(worker)
        self.workers[worker] = WorkerRecord(
            number=worker,
            place=place or (before.place if before else ""),
            state=state,
            did=did,
            heard_at=time.time(),
        )

    def let_workers_go(self) -> None:
        """No worker outlives its run."""
        for number, worker in self.workers.items():
            if worker.state is WorkerState.WORKING:
                self.workers[number] = msgspec.structs.replace(worker, state=WorkerState.ENDED)

    def live(self, seconds: float, last_new_s: float | None) -> CampaignProgress:
        """What to show. seconds: of this run"""
        return CampaignProgress(
            scenarios=self._totals.done,
            schedules=self._totals.schedules,
            seconds=self._totals.seconds + seconds,
            signatures=len(self.known) + len(self.new),
            last_new_s=last_new_s,
        )

    def save(self, seconds: float) -> CampaignState:
        """Writes how far the campaign is, whole or not at all. seconds: of this run"""
        self._totals.note(time.time())
        state = self.state(seconds)
        write_whole(self.folder / STATE_FILE, encoded_state(state))
        if self.shared is not None:
            self.shared.sync(state)
        return state

    def state(self, seconds: float) -> CampaignState:
        """How far the campaign is. seconds: of this run"""
        totals = self._totals
        return CampaignState(
            schema=STATE_SCHEMA,
            seed=self.spec.seed,
            fault=self.spec.fault,
            holds_each=self.spec.holds_each,
            benign=self.spec.benign,
            done=totals.done,
            schedules=totals.schedules,
            verdicts=dict(sorted(totals.verdicts.items())),
            hits=dict(sorted(totals.hits.items())),
            exercised=dict(sorted(totals.exercised.items())),
            scenarios_with=dict(sorted(totals.scenarios_with.items())),
            features=totals.features.table(),
            seconds=totals.seconds + seconds,
            set_aside=tuple(totals.set_aside),
            selfcheck=totals.selfcheck,
            seen=dict(sorted(totals.seen.items())),
            workers=tuple(worker for _, worker in sorted(self.workers.items())),
            target=self.spec.target,
            began=self._began,
            moments=totals.moments,
        )


def _decides(given: CampaignSpec | CampaignState) -> str:
    """What decides a campaign's scenarios and what is done with them, in words."""
    strict = ", --strict" if given.benign is Benign.FINDING else ""
    target = f", {given.target}" if given.target else ""
    return f"seed {given.seed}, fault {given.fault}, {given.holds_each} drawn holds{strict}{target}"


def _known(folder: Path) -> tuple[set[str], list[GeneratedFinding]]:
    """Signatures of the witnesses in a folder, which is made if it does not exist; and those that
    still are as they were found.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        check_writable(folder / STATE_FILE)
        found = {path: any_witness(path) for path in sorted(folder.glob("*.witness.json"))}
        raw = [_as_found(one) for path, one in found.items() if path.name.endswith(RAW)]
    except (OSError, WitnessError) as error:
        raise CampaignError(str(error)) from error
    known = {one.known_as for path, one in found.items() if not path.name.endswith(RAW)}
    return known, [one for one in raw if one.signature not in known]


def _as_found(witness: SealedWitness) -> GeneratedFinding:
    return GeneratedFinding(
        signature=witness.known_as,
        index=drawn_at(witness).index,
        witness=witness,
        runs=0,
        is_minimal=False,
    )


def _as_kept(found: GeneratedFinding) -> KeptFinding:
    return KeptFinding(signature=found.signature, is_minimal=False, witness=found.witness)
