"""What a store keeps of campaigns, and which of two records stays."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from racegate.check.selfcheck import SelfCheck
from racegate.explore.features.table import FeatureTable
from racegate.history.exit_code import ExitCode
from racegate.history.finding import Benign, Verdict, exit_code
from racegate.history.witness import SealedWitness, WitnessError, sealed
from racegate.jobs.stores.witnesses import any_witness_in, drawn_at
from racegate.scenario.strict import StrictStruct
from racegate.scenario.untrusted.reading import ReadError, decode_json
from racegate.scenario.untrusted.text import quoted

STATE_SCHEMA = "racegate.campaign/5"
STATE_BYTES_MAX = 1 << 24
MOMENTS_MAX = 128


class RecordError(Exception):
    """A record that is not understood, and why."""


class ScenarioAside(StrictStruct, frozen=True, kw_only=True):
    """A scenario that took its workers with it. scenario: its index; why: how the last one went"""

    scenario: int
    why: str


class Sighting(StrictStruct, frozen=True, kw_only=True):
    """When scenarios showed a signature. first, last: seconds since 1970"""

    first: float
    last: float


class CampaignMoment(StrictStruct, frozen=True, kw_only=True):
    """How far a campaign was. at: when, seconds since 1970; done: scenarios looked at until then"""

    at: float
    done: int


def with_moment(
    moments: Sequence[CampaignMoment], now: CampaignMoment
) -> tuple[CampaignMoment, ...]:
    """With one more; of very many, every second is left out, but the first and the last."""
    found = (*moments, now)
    return found if len(found) <= MOMENTS_MAX else (*found[:-1:2], now)


class WorkerState(StrEnum):
    """Of a worker, by what was heard of it last."""

    WORKING = "working"
    LOST = "lost"
    ENDED = "ended"


class WorkerRecord(StrictStruct, frozen=True, kw_only=True):
    """A worker of a campaign's last run. number: among them; place: where it is

    state: at work, lost, or at its end
    did: what it had done when it was heard of last, or what it was lost at; heard_at: when, seconds
    since 1970
    """

    number: int
    place: str
    state: WorkerState
    did: str
    heard_at: float


class CampaignState(StrictStruct, frozen=True, kw_only=True):
    """What a campaign has done.

    holds_each: further schedules of each scenario, with drawn holds
    benign: whether a scenario that is BENIGN shows something
    verdicts: scenarios by what they came to
    done: scenarios looked at, which are the first so many of the seed
    hits: scenarios that showed each signature
    exercised: how often each thing happened in all of them; scenarios_with: in how many it happened
        at all, and how many had each setting
    features: pairs of features, of scenarios without fault
    set_aside: scenarios of which nothing is known
    seen: when each signature of `hits` was seen; workers: of the last run, as it wrote this
    target: what was judged, of a fleet; empty for the engine that is installed
    began: when its last run did, seconds since 1970, 0 in files of an earlier version
    moments: how far it was when, in order
    """

    schema: str
    seed: int
    fault: str | None
    holds_each: int
    benign: Benign
    done: int
    schedules: int
    verdicts: dict[str, int]
    hits: dict[str, int]
    exercised: dict[str, int]
    scenarios_with: dict[str, int]
    features: FeatureTable
    seconds: float
    set_aside: tuple[ScenarioAside, ...]
    selfcheck: SelfCheck = SelfCheck()
    seen: dict[str, Sighting] = msgspec.field(default_factory=dict)
    workers: tuple[WorkerRecord, ...] = ()
    target: str = ""
    began: float = 0.0
    moments: tuple[CampaignMoment, ...] = ()

    def done_after(self, moment: float) -> int:
        """How many scenarios were surely looked at after a moment, in seconds since 1970."""
        return self.done - next((one.done for one in self.moments if one.at >= moment), self.done)


def code_of(state: CampaignState, *, excused: Sequence[str]) -> ExitCode:
    """What a campaign ends with by what its scenarios came to, in all its runs.

    excused: settings of drawn scenarios that are inconclusive because of how they were drawn, which
        is no reason; a campaign of nothing else is one
    """
    code = exit_code(
        {Verdict(name) for name, count in state.verdicts.items() if count}, benign=state.benign
    )
    if code in (ExitCode.FINDING, ExitCode.BROKEN_HARNESS):
        return code
    inconclusive = state.verdicts.get(Verdict.INCONCLUSIVE, 0)
    is_idle = inconclusive == sum(state.verdicts.values())
    is_open = inconclusive > sum(state.scenarios_with.get(name, 0) for name in excused)
    is_clean = not (is_idle or is_open or state.set_aside)
    return ExitCode.CLEAN if is_clean else ExitCode.INCONCLUSIVE


class KeptFinding(StrictStruct, frozen=True, kw_only=True):
    """A finding in a store. signature: what it is known by, which its minimal form need not show"""

    signature: str
    is_minimal: bool
    witness: SealedWitness

    @property
    def seed(self) -> int:
        """Of the campaign that found it."""
        return drawn_at(self.witness).seed

    @property
    def index(self) -> int:
        """Of the scenario that showed it."""
        return drawn_at(self.witness).index


def first_of(kept: KeptFinding | None, offered: KeptFinding) -> KeptFinding:
    """Which of two findings with one signature stays: the seed that was first has it, and of its
    scenarios the lowest; of this one the minimal form.
    """
    if kept is None:
        return offered
    if offered.seed != kept.seed:
        return kept
    return min(kept, offered, key=lambda finding: (finding.index, not finding.is_minimal))


def further_of(kept: CampaignState | None, offered: CampaignState) -> CampaignState:
    """Which of two states of one campaign stays: it never goes back."""
    return offered if kept is None or offered.done >= kept.done else kept


class _Schema(msgspec.Struct, frozen=True):
    """What a record says that it is."""

    schema: str = "nothing"


def state_in(raw: object) -> CampaignState:
    """A state as this version writes it. Raises RecordError."""
    try:
        written = msgspec.convert(raw, _Schema).schema
        if written != STATE_SCHEMA:
            raise RecordError(
                f"written as {quoted(written)}, this racegate goes on with {STATE_SCHEMA!r}"
            )
        return msgspec.convert(raw, CampaignState)
    except msgspec.ValidationError as error:
        raise RecordError(f"cannot be read: {error}") from error


def encoded_state(state: CampaignState) -> bytes:
    """As `state_in` reads it, for people too."""
    return msgspec.json.format(msgspec.json.encode(state), indent=1) + b"\n"


class _Entry(StrictStruct, frozen=True, kw_only=True):
    """A finding as a server holds it: its witness is checked as one in a file is."""

    signature: str
    is_minimal: bool
    witness: dict[str, object]


def finding_in(content: bytes) -> KeptFinding:
    """A finding from a server. Raises RecordError."""
    try:
        entry = msgspec.convert(decode_json(content), _Entry)
        kept = KeptFinding(
            signature=entry.signature,
            is_minimal=entry.is_minimal,
            witness=any_witness_in(entry.witness, source=f"the finding {quoted(entry.signature)}"),
        )
        drawn_at(kept.witness)
    except (ReadError, msgspec.ValidationError, WitnessError) as error:
        raise RecordError(str(error)) from error
    return kept


def encoded_finding(finding: KeptFinding) -> bytes:
    """As `finding_in` reads it."""
    whole = msgspec.structs.replace(finding, witness=sealed(finding.witness))
    return msgspec.json.encode(whole, order="deterministic")
