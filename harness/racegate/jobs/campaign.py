"""A campaign's folder: witnesses, and how far it is. A second run with it goes on from there.

What was found is written as it was found (`*.raw.witness.json`), and replaced by its minimal form:
a kill in between loses nothing, and the next run minimises it.

A finding is known once, by its signature; what is reported for one is the scenario with the lowest
index that showed it.
"""

from __future__ import annotations

from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from racegate.check.selfcheck import SelfCheck, together
from racegate.explore.features.table import FeatureTable, FeatureTotals
from racegate.history.breakage import Breakage
from racegate.history.files import check_writable, write_whole
from racegate.history.witness import Witness, WitnessError, load_witness, save
from racegate.jobs.generated import CampaignSpec, Found, Report, index_of
from racegate.scenario.errors import BadInputError
from racegate.scenario.outside.reading import ReadError, read_json
from racegate.scenario.outside.text import quoted
from racegate.scenario.strict import StrictStruct

STATE_FILE = "campaign.json"
RAW = ".raw.witness.json"
STATE_SCHEMA = "racegate.campaign/4"
STATE_BYTES_MAX = 1 << 24


class CampaignError(BadInputError):
    """A folder that belongs to another campaign, or cannot be used."""


class ScenarioAside(StrictStruct, frozen=True, kw_only=True):
    """A scenario that took its workers with it. scenario: its index; why: how the last one went"""

    scenario: int
    why: str


class CampaignState(StrictStruct, frozen=True, kw_only=True):
    """What a folder's campaign has done.

    verdicts: scenarios by what they came to
    done: scenarios looked at, which are the first so many of the seed
    exercised: how often each thing happened in all of them; scenarios_with: in how many it happened
        at all, and how many had each setting
    features: pairs of features, of scenarios without fault
    set_aside: scenarios of which nothing is known
    """

    schema: str
    seed: int
    fault: str | None
    done: int
    schedules: int
    verdicts: dict[str, int]
    exercised: dict[str, int]
    scenarios_with: dict[str, int]
    features: FeatureTable
    seconds: float
    set_aside: tuple[ScenarioAside, ...]
    selfcheck: SelfCheck = SelfCheck()


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
    exercised: Counter[str] = field(default_factory=Counter)
    scenarios_with: Counter[str] = field(default_factory=Counter)
    features: FeatureTotals = field(default_factory=FeatureTotals)
    set_aside: list[ScenarioAside] = field(default_factory=list)
    selfcheck: SelfCheck = field(default_factory=SelfCheck)

    def add(self, report: Report) -> None:
        self.done += 1
        self.schedules += report.schedules
        self.verdicts[report.verdict] += 1
        self.exercised.update(report.exercised)
        self.scenarios_with.update(name for name, count in report.exercised.items() if count)
        self.scenarios_with.update(report.settings)
        if report.features:
            self.features.add(report.features)


class Campaign:
    """What is known of a campaign.

    new: findings of this run, by signature; known: signatures from before
    to_minimise: findings that are written as they were found, the next first
    selfcheck: of this run; unchecked: workers that ended without their last canaries
    replaced: how many workers were lost and what they did was handed to another
    breakages: errors of the harness in this run, and set_aside: those that do not end it
    stop: what ended it, if it was told to stop

    Raises CampaignError.
    """

    def __init__(self, spec: CampaignSpec, folder: Path) -> None:
        self.spec = spec
        self.folder = folder
        self.known, raw = _known(folder)
        self.new: dict[str, Found] = {}
        self.to_minimise: deque[Found] = deque()
        self.breakages: list[Breakage] = []
        self.set_aside: list[Breakage] = []
        self.replaced = 0
        self.selfcheck = SelfCheck()
        self.unchecked: set[int] = set()
        self.stop: KeyboardInterrupt | None = None
        self._totals = self._before()
        for found in map(_as_found, raw):
            # What is not counted yet is looked at again, and then it may be an earlier scenario's.
            if found.index < self.done:
                self._open(found)

    def _before(self) -> _Totals:
        path = self.folder / STATE_FILE
        if not path.exists():
            return _Totals()
        state = _decoded(path)
        if (state.seed, state.fault) != (self.spec.seed, self.spec.fault):
            raise CampaignError(
                f"{path}: of a campaign with seed {state.seed}, fault {state.fault}; use the same "
                "or another folder"
            )
        features = FeatureTotals()
        try:
            features.add_table(state.features)
        except ValueError as error:
            raise CampaignError(f"{path}: {error}; use another folder") from error
        return _Totals(
            done=state.done,
            schedules=state.schedules,
            seconds=state.seconds,
            verdicts=Counter(state.verdicts),
            exercised=Counter(state.exercised),
            scenarios_with=Counter(state.scenarios_with),
            features=features,
            set_aside=list(state.set_aside),
            selfcheck=state.selfcheck,
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
        is_new = found is not None and not self._knows(found.signature)
        if found is not None and is_new:
            self._open(found)
            # Before it is counted: then it is not looked at again.
            save(found.witness, self.folder / raw_name(found.signature))
        self.check(report.selfcheck)
        self.breakages += report.breakages
        if not report.breakages:
            self._totals.add(report)
        return is_new

    def put_aside(self, task: int | Found, breakage: Breakage) -> None:
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
        path = self.folder / raw_name(found.signature)
        if not path.exists():
            with suppress(OSError):  # `add` says so
                save(found.witness, path)

    def minimised(self, signature: str, small: Found) -> None:
        """Writes the minimal form of a finding in place of what was found. Minimal, a failure may
        go by another name.
        """
        self.new[signature] = small
        save(small.witness, self.folder / witness_name(signature))
        (self.folder / raw_name(signature)).unlink(missing_ok=True)

    def _open(self, found: Found) -> None:
        self.new[found.signature] = found
        self.to_minimise.append(found)

    def _knows(self, signature: str) -> bool:
        return signature in self.known or signature in self.new

    def check(self, selfcheck: SelfCheck) -> None:
        """Counts what a worker found out about the harness."""
        self.selfcheck = together((self.selfcheck, selfcheck))
        self._totals.selfcheck = together((self._totals.selfcheck, selfcheck))

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
        state = self.state(seconds)
        content = msgspec.json.format(msgspec.json.encode(state), indent=1) + b"\n"
        write_whole(self.folder / STATE_FILE, content)
        return state

    def state(self, seconds: float) -> CampaignState:
        """How far the campaign is. seconds: of this run"""
        totals = self._totals
        return CampaignState(
            schema=STATE_SCHEMA,
            seed=self.spec.seed,
            fault=self.spec.fault,
            done=totals.done,
            schedules=totals.schedules,
            verdicts=dict(sorted(totals.verdicts.items())),
            exercised=dict(sorted(totals.exercised.items())),
            scenarios_with=dict(sorted(totals.scenarios_with.items())),
            features=totals.features.table(),
            seconds=totals.seconds + seconds,
            set_aside=tuple(totals.set_aside),
            selfcheck=totals.selfcheck,
        )


class _Schema(msgspec.Struct, frozen=True):
    """What a file says that it is."""

    schema: str = "nothing"


def _decoded(path: Path) -> CampaignState:
    """A state written by this version. Raises CampaignError."""
    try:
        raw = read_json(path, STATE_BYTES_MAX)
        written = msgspec.convert(raw, _Schema).schema
        if written != STATE_SCHEMA:
            raise CampaignError(
                f"{path}: written as {quoted(written)}, this racegate goes on with "
                f"{STATE_SCHEMA!r}: name another folder, the witnesses in this one stay good"
            )
        return msgspec.convert(raw, CampaignState)
    except (ReadError, msgspec.ValidationError) as error:
        raise CampaignError(f"{path}: cannot be read: {error}") from error


def _known(folder: Path) -> tuple[set[str], list[Witness]]:
    """Signatures of the witnesses in a folder, which is made if it does not exist; and those that
    still are as they were found.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        check_writable(folder / STATE_FILE)
        found = {path: load_witness(path) for path in sorted(folder.glob("*.witness.json"))}
    except (OSError, WitnessError) as error:
        raise CampaignError(str(error)) from error
    known = {one.signature for path, one in found.items() if not path.name.endswith(RAW)}
    raw = [one for path, one in found.items() if path.name.endswith(RAW)]
    return known, [one for one in raw if one.signature not in known]


def _as_found(witness: Witness) -> Found:
    return Found(
        signature=witness.signature,
        index=index_of(witness),
        witness=witness,
        runs=0,
        is_minimal=False,
    )


def witness_name(signature: str) -> str:
    """A file name for a signature."""
    plain = "".join(c if c.isalnum() or c in "-_." else "_" for c in signature.replace("/", "-"))
    return f"{plain[:120]}.witness.json"


def raw_name(signature: str) -> str:
    """The same for a witness that is not minimised."""
    return f"{witness_name(signature).removesuffix('.witness.json')}{RAW}"
