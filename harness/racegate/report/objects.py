"""Objects that commands print and no room below has: results with what they were measured on, and
what a list shows of each.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from racegate.check.selfcheck import SelfCheck
from racegate.faults.fault import FaultKind, Need
from racegate.history.breakage import Breakage
from racegate.jobs.findability import CampaignFinding, Findability, FindingStatus
from racegate.jobs.fleet.matrix import TargetMatrix
from racegate.jobs.stores.records import CampaignState, ScenarioAside, Sighting, WorkerRecord
from racegate.jobs.versions.cells import CellReport
from racegate.report.cause.shared import SharedCause
from racegate.targets.program.doctor import Checkup


class NewFinding(msgspec.Struct, frozen=True, kw_only=True):
    """A signature that a campaign's folder did not hold.

    scenario: index of the drawn scenario, the lowest that showed it
    shrink_runs: runs that minimising took; is_minimal: no hold or request can be removed
    requests: how many the minimal scenario has
    is_seen: a user sees what is wrong in the minimal run; null where nobody looked: it is not
        minimised, no value is wrong, or the target is not our own engine
    looked: schedules that were run to find one in which a user sees it, 0 if the first did
    """

    signature: str
    scenario: int
    shrink_runs: int
    is_minimal: bool
    holds: tuple[str, ...]
    requests: int
    is_seen: bool | None = None
    looked: int = 0


class FuzzObject(msgspec.Struct, frozen=True, kw_only=True):
    """A campaign as far as it got.

    campaign: what all its runs have done, as in `campaign.json`
    selfcheck: of this run; unchecked: workers that ended without their last canaries
    known: signatures found before this run; new: those found in it
    breakages: errors of the harness in this run, and what was set aside in it
    losses: workers that were lost, and why, while others did what they were doing
    store: that other campaigns use too, without secrets; null without one
    unsent: findings that are in the folder and not in this store
    """

    schema: str
    campaign: CampaignState
    selfcheck: SelfCheck
    unchecked: tuple[int, ...]
    known: tuple[str, ...]
    new: tuple[NewFinding, ...]
    breakages: tuple[Breakage, ...] = ()
    losses: tuple[str, ...] = ()
    store: str | None = None
    unsent: int = 0


class HistoryObject(msgspec.Struct, frozen=True, kw_only=True):
    """The same scenarios, or one program, on version after version.

    target: `vllm`, `sglang` or the package; versions: those that were asked for, in their order
    names: of the scenarios, or the program's command; cells: all ways to run all versions
    """

    schema: str
    target: str
    versions: tuple[str, ...]
    names: tuple[str, ...]
    cells: tuple[CellReport, ...]


class FindingsObject(msgspec.Struct, frozen=True, kw_only=True):
    """What campaigns have found. store: where, without secrets; campaigns: that keep it there
    scenarios: looked at by all of them; findings: the rarest last
    causes: findings with one cause together; null if nobody asked for them
    targets: of fleets that keep theirs there, side by side; null without any
    """

    schema: str
    store: str
    campaigns: int
    scenarios: int
    findings: tuple[CampaignFinding, ...]
    causes: tuple[SharedCause, ...] | None = None
    targets: TargetMatrix | None = None


class FaultEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A seeded fault of the catalogue.

    name: what `--fault` takes; number: in the catalogue, 0 for none; kind: what kind of defect
    needs: what a scenario has to have for it; origin: where it is known from
    expect: the field expected to differ first, as boundary.field
    scenarios: scripts that show it, the smallest first
    holds: of an ordering fault, script to the holds under which a value goes wrong
    """

    name: str
    number: int
    kind: FaultKind
    needs: tuple[Need, ...]
    origin: str
    summary: str
    expect: str
    scenarios: tuple[str, ...]
    holds: dict[str, tuple[str, ...]]


class DoctorObject(msgspec.Struct, frozen=True, kw_only=True):
    """What works on a machine. checkups: one for each thing looked at"""

    schema: str
    checkups: tuple[Checkup, ...]


class CommitKind(StrEnum):
    """measured: the file, or who wrote its command down, says so; committed: the last commit that
    changed the file; unknown: nobody says.
    """

    MEASURED = "measured"
    COMMITTED = "committed"
    UNKNOWN = "unknown"


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """A file of figures. file: from the folder of reports; command: what made it, empty if nobody
    says

    commit: of the code that was measured, or that the file came with; kind: which of them
    machine: what it was measured on, as far as the file says
    """

    file: str
    command: str
    commit: str
    kind: CommitKind
    machine: str


class SiteFile(msgspec.Struct, frozen=True, kw_only=True):
    """A page of a site. path: from the site's folder; title: what it is; bytes: its size"""

    path: str
    title: str
    bytes: int


class SiteObject(msgspec.Struct, frozen=True, kw_only=True):
    """A site of reports. folder: where it was written; pages: HTML; files: the others, with what
    their figures are of
    """

    schema: str
    folder: str
    pages: tuple[SiteFile, ...]
    files: tuple[Evidence, ...]


class CampaignView(msgspec.Struct, frozen=True, kw_only=True):
    """One campaign, in all its runs.

    scenarios, schedules: done; schedules_per_second: while it was at work
    verdicts: scenarios by what they came to
    pairs_occurred: pairs of features that a run had; pairs_possible: those that a run can have
    pairs_missing: the others; all none with a fault, where nobody counts them
    set_aside: scenarios of which nothing is known
    workers: of its last run, as it last said
    """

    seed: int
    fault: str | None
    scenarios: int
    schedules: int
    seconds: float
    schedules_per_second: float
    verdicts: dict[str, int]
    pairs_occurred: int
    pairs_possible: int
    pairs_missing: tuple[tuple[str, str], ...]
    selfcheck: SelfCheck
    set_aside: tuple[ScenarioAside, ...]
    workers: tuple[WorkerRecord, ...]

    def workers_in(self, state: str) -> int:
        """How many are in a state."""
        return sum(worker.state == state for worker in self.workers)


class FindingView(msgspec.Struct, frozen=True, kw_only=True):
    """A finding.

    name: in addresses, from its signature; file: what its witness is called; title: of its scenario
    scenario: index of the first drawn scenario of the seed that showed it
    findability: in campaigns like the one that found it, null if none counted it
    status: new, ongoing or resolved; seen: when scenarios of any campaign showed it; null if none
        says
    is_minimal: no hold or request can be removed; requests: how many its scenario has
    replay: the command that runs it again, beside its file
    """

    signature: str
    name: str
    file: str
    title: str
    verdict: str
    seed: int
    scenario: int
    findability: Findability | None
    status: FindingStatus | None
    seen: Sighting | None
    fault: str | None
    holds: tuple[str, ...]
    requests: int
    is_minimal: bool
    replay: str


class DashboardView(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known. store: where from, without secrets; read_at: seconds since 1970

    problem: why the store does not answer; what it said last is shown
    campaigns: by seed
    targets: of fleets that keep theirs there, side by side; null without any
    """

    schema: str
    store: str
    read_at: float
    problem: str | None
    campaigns: tuple[CampaignView, ...]
    findings: tuple[FindingView, ...]
    targets: TargetMatrix | None = None

    @property
    def schedules(self) -> int:
        """Of all campaigns."""
        return sum(campaign.schedules for campaign in self.campaigns)

    @property
    def scenarios(self) -> int:
        """Of all campaigns."""
        return sum(campaign.scenarios for campaign in self.campaigns)

    @property
    def is_sound(self) -> bool:
        """Whether what the campaigns say counts."""
        checks = [campaign.selfcheck for campaign in self.campaigns]
        if self.targets is not None:
            checks += [target.selfcheck for target in self.targets.targets]
        return all(check.is_sound for check in checks)
