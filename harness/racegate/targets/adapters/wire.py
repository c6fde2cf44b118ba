"""The protocol as data: one JSON object per line, questions to the engine, lines from it.

racegate asks one question at a time. An engine writes lines while it runs, in the order in which
its host issues and does things, and then one answer, which names its question. Decoding is strict:
a field that is not known here is an error, and so is another schema.
docs/bring_your_own_runner.md describes it for whoever writes an adapter.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from racegate.history.edge import Edge
from racegate.history.trace import HoldOutcome, Owner
from racegate.scenario.errors import BadInputError
from racegate.scenario.spec import OwnScenario
from racegate.scenario.strict import StrictStruct
from racegate.scenario.untrusted.text import quoted

SCHEMA = "racegate.adapter/1"


class Offer(StrEnum):
    """What an engine can do beside telling its history.

    PLAIN: decode a scenario plainly, one token after another
    OBSERVATIONS: say what is true at boundaries
    HOLDS: keep an operation back until a point
    OWNERS: say whose value it found where it meant to read whose
    CLOCKS: say of every operation and access what it knows to be complete, in place of waits
    SETTINGS: be configured as the scenario's `model` and `engine` say, as racegate's own engine is
    """

    PLAIN = "plain"
    OBSERVATIONS = "observations"
    HOLDS = "holds"
    OWNERS = "owners"
    CLOCKS = "clocks"
    SETTINGS = "settings"


class EventKind(StrEnum):
    """Scenario events; an engine names those that it can make happen."""

    PREEMPT = "preempt"
    ABORT = "abort"
    GAP = "gap"
    BUDGET = "budget"
    DRAFT_LIMIT = "draft_limit"
    ROTATE = "rotate"
    DUMMY = "dummy"


class _Plant(StrictStruct, frozen=True, kw_only=True, tag_field="plant"):
    """A generic fault that an engine plants into itself for one run."""


class DropEdge(_Plant, frozen=True, kw_only=True, tag="drop_edge"):
    """The waits of one edge do not wait."""

    edge: str


class WrongRow(_Plant, frozen=True, kw_only=True, tag="wrong_row"):
    """An accepted count is taken from another row than the request's."""


class StaleValue(_Plant, frozen=True, kw_only=True, tag="stale_value"):
    """The accepted count of an earlier step is taken once more."""


class OwnPlant(_Plant, frozen=True, kw_only=True, tag="own"):
    """A fault that only this engine knows, by the name that it has for it."""

    name: str


Plant = DropEdge | WrongRow | StaleValue | OwnPlant
PLANTS_TEXT = "drop_edge:NAME, wrong_row, stale_value or own:NAME"


class PlantError(BadInputError):
    """A plant that cannot be read."""


def plant_text(plant: Plant) -> str:
    """A plant in one word, as `PLANTS_TEXT` says."""
    match plant:
        case DropEdge():
            return f"drop_edge:{plant.edge}"
        case OwnPlant():
            return f"own:{plant.name}"
    return _tag_of(plant)


def parse_plant(text: str) -> Plant:
    """What `plant_text` wrote. Raises PlantError."""
    kind, _, name = text.partition(":")
    if kind == "drop_edge" and name:
        return DropEdge(edge=name)
    if kind == "own" and name:
        return OwnPlant(name=name)
    if text == "wrong_row":
        return WrongRow()
    if text == "stale_value":
        return StaleValue()
    raise PlantError(f"cannot read the plant {quoted(text)}: write {PLANTS_TEXT}")


class _Question(StrictStruct, frozen=True, kw_only=True, tag_field="ask"):
    """What racegate asks. id: repeated by the answer"""

    id: int


class HelloQuestion(_Question, frozen=True, kw_only=True, tag="hello"):
    """The first one, and behind every run once more: who are you?"""

    schema: str


class RunQuestion(_Question, frozen=True, kw_only=True, tag="run"):
    """Run this. holds: `OP until POINT` (racegate.history.schedule); plant: a fault to plant"""

    scenario: OwnScenario
    device: str
    holds: tuple[str, ...] = ()
    plant: Plant | None = None


class PlainQuestion(_Question, frozen=True, kw_only=True, tag="plain"):
    """Decode this plainly: no drafts, no batching, nothing asynchronous, nothing planted."""

    scenario: OwnScenario


Question = HelloQuestion | RunQuestion | PlainQuestion


class _Line(StrictStruct, frozen=True, kw_only=True, tag_field="is"):
    """What an engine writes."""


class BufferLine(_Line, frozen=True, kw_only=True, tag="buffer"):
    """A buffer is there, before its first access.

    storage: the memory behind the name; buffers that share memory share it. The name, if not given
    """

    name: str
    rows: int
    storage: str | None = None


class AccessEntry(StrictStruct, frozen=True, kw_only=True):
    """One use of a buffer. rows: numbers, or [first, end) pairs; all of them if not given"""

    buffer: str
    rows: tuple[int | tuple[int, int], ...] | None = None
    write: bool = False


class OpLine(_Line, frozen=True, kw_only=True, tag="op"):
    """The host put an operation on a stream. name: `kind:name@step`, once in a run.

    clock: with CLOCKS only: lane -> how many of its operations are known to come before
    """

    name: str
    lane: str
    accesses: tuple[AccessEntry, ...] = ()
    clock: dict[str, int] | None = None


class HostLine(_Line, frozen=True, kw_only=True, tag="host"):
    """The host touched memory that the device uses too. name: of the action, `host:name@step`"""

    name: str
    accesses: tuple[AccessEntry, ...]
    clock: dict[str, int] | None = None


class RecordLine(_Line, frozen=True, kw_only=True, tag="record"):
    """An event was recorded on a stream."""

    event: str
    lane: str


class WaitLine(_Line, frozen=True, kw_only=True, tag="wait"):
    """A lane waits for the latest record of an event. dropped: it does not, by a planted fault"""

    edge: str
    event: str
    lane: str = "host"
    dropped: bool = False


class QueryLine(_Line, frozen=True, kw_only=True, tag="query"):
    """The host asked whether the latest record of an event is complete, without waiting."""

    name: str
    event: str


class OwnerLine(_Line, frozen=True, kw_only=True, tag="owner"):
    """A row was read for one owner, and had this one. found: None is nobody's value"""

    name: str
    buffer: str
    row: int
    meant: Owner
    found: Owner | None


class ObservationLine(_Line, frozen=True, kw_only=True, tag="observation"):
    """What is true at a boundary of a step: plain data by field. boundary: one that the engine
    introduced; those of `Boundary` are known by their fields, any other is compared as it is
    """

    step: int
    boundary: str
    values: dict[str, object]


class _Answer(_Line, frozen=True, kw_only=True):
    """The last line for a question. to: its id"""

    to: int


class HelloAnswer(_Answer, frozen=True, kw_only=True, tag="hello"):
    """What the engine is and offers.

    lanes: its streams; the host is always there and not among them
    edges: the orderings that it keeps, by name; events: scenario events it can make happen
    holdable: patterns of operations that it can hold back
    plants: faults that it can plant, each of which shows in the kit's scenario
    not_seen: in words, what its history leaves out
    """

    schema: str
    engine: str
    version: str
    lanes: tuple[str, ...]
    devices: tuple[str, ...] = ("cpu",)
    offers: tuple[Offer, ...] = ()
    boundaries: tuple[str, ...] = ()
    holdable: tuple[str, ...] = ("*",)
    events: tuple[EventKind, ...] = ()
    edges: tuple[Edge, ...] = ()
    plants: tuple[Plant, ...] = ()
    not_seen: tuple[str, ...] = ()


class RanAnswer(_Answer, frozen=True, kw_only=True, tag="ran"):
    """The run came to its end.

    delivered: request -> tokens; finished: request -> max_tokens, stop, abort or unfinished
    counters: what was exercised, by the names of a scenario's `expect`
    holds: what became of each hold of the question, in its order
    unmet_events: scenario events that had no effect
    """

    delivered: dict[str, tuple[int, ...]]
    finished: dict[str, str]
    steps: int
    counters: dict[str, int] = msgspec.field(default_factory=dict)
    holds: tuple[HoldOutcome, ...] = ()
    unmet_events: tuple[str, ...] = ()


class StopKind(StrEnum):
    """Why an engine stopped by itself."""

    CRASH = "crash"
    DEADLOCK = "deadlock"


class StoppedAnswer(_Answer, frozen=True, kw_only=True, tag="stopped"):
    """The engine stopped on an error of its own; the process goes on. error: its type"""

    kind: StopKind
    error: str
    message: str


class PlainAnswer(_Answer, frozen=True, kw_only=True, tag="plain"):
    """Request -> the tokens of plain decoding, whole."""

    tokens: dict[str, tuple[int, ...]]


class RefusedAnswer(_Answer, frozen=True, kw_only=True, tag="refused"):
    """The engine cannot do what was asked, and says why. Nothing is wrong with that."""

    reason: str


Answer = HelloAnswer | RanAnswer | StoppedAnswer | PlainAnswer | RefusedAnswer
HistoryLine = (
    BufferLine | OpLine | HostLine | RecordLine | WaitLine | QueryLine | OwnerLine | ObservationLine
)
Line = HistoryLine | Answer

_ENCODER = msgspec.json.Encoder()
_LINES: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)
_QUESTIONS: msgspec.json.Decoder[Question] = msgspec.json.Decoder(Question)


def encode(message: Question | Line) -> bytes:
    """A message as a line, with its end."""
    return _ENCODER.encode(message) + b"\n"


def decode_line(text: bytes) -> Line:
    """What an engine wrote. Raises msgspec.ValidationError or msgspec.DecodeError."""
    return _LINES.decode(text)


def decode_question(text: bytes) -> Question:
    """What racegate asked, for adapters that have racegate at hand. Raises as `decode_line`."""
    return _QUESTIONS.decode(text)


def _tag_of(message: StrictStruct) -> str:
    return str(message.__struct_config__.tag)
