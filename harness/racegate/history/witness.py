"""Witness: one versioned JSON file that reproduces a finding. Strict to read: what is not
understood is refused.

A witness is about a subject, which its tag names: our own engine here, a program, a release or an
adapter in `targets`. All have the same envelope and the same seal. Files of older schemas are
converted when they are read, behind a check of their seal, if they have one.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from racegate.history import __version__
from racegate.history.finding import Finding, FindingKind, Hazard, Race, Verdict, signature_of
from racegate.history.schedule import ScheduleError, parse_holds, parse_schedule
from racegate.scenario.errors import BadInputError
from racegate.scenario.spec import OwnScenario, ScenarioError
from racegate.scenario.strict import StrictStruct
from racegate.scenario.untrusted.files import write_whole
from racegate.scenario.untrusted.reading import ReadError, read_json
from racegate.scenario.untrusted.text import printable_json, quoted
from racegate.scenario.validation import validate

SCHEMA = "racegate.witness/2"
FIRST_SCHEMA = "racegate.witness/1"
# Schemas of older files, and the subject of each.
OLDER = {
    FIRST_SCHEMA: "engine",
    "racegate.program/1": "program",
    "racegate.vllm-witness/1": "vllm",
}
UNSEALED = ("racegate.vllm-witness/1",)
WITNESS_BYTES_MAX = 1 << 22
Raw = dict[str, object]


class WitnessError(BadInputError):
    """A witness file that cannot be used: names the file and the reason."""


class Operation(StrictStruct, frozen=True, kw_only=True):
    """One of the two operations of a finding.

    name: as a hold names it; lane: the stream or thread, empty where it is part of the name
    is_write: whether it writes, null where that was not recorded
    """

    name: str
    lane: str = ""
    is_write: bool | None = None


class RecordedFinding(StrictStruct, frozen=True, kw_only=True):
    """What a witness shows, in words that no replay is compared by.

    kind: what is wrong; hazard: which kind of danger it is, if it is a race
    buffer: what holds the bytes; operations: the two that nothing orders, or the one that reads
    edge: what would order them, as it was called at that time
    """

    kind: FindingKind
    hazard: Hazard | None = None
    buffer: str = ""
    operations: tuple[Operation, ...] = ()
    edge: str = ""


class DrawnIndex(StrictStruct, frozen=True, kw_only=True):
    """Where a campaign found something. seed: the campaign's; index: of the scenario it drew"""

    seed: int
    index: int


class SealedWitness(StrictStruct, frozen=True, kw_only=True):
    """The envelope of every witness.

    title: in words; holds: as text, the smallest set that shows it
    polls: how often completion queries are first answered "not ready"
    signature: what a replay has to show, empty in older files of releases; finding: what that was
    verdict: on the recorded run; versions: of what it ran on
    drawn: where a campaign found it, null if none did, or in a file of an earlier version
    checksum: hash of all other fields, so that an altered file is noticed
    """

    schema: str = SCHEMA
    title: str
    holds: tuple[str, ...]
    polls: int = 0
    signature: str
    finding: RecordedFinding | None = None
    verdict: Verdict
    versions: dict[str, str]
    drawn: DrawnIndex | None = None
    checksum: str = ""

    @property
    def known_as(self) -> str:
        """What a campaign calls the finding."""
        return self.signature


class EngineSubject(StrictStruct, frozen=True, kw_only=True, tag="engine", tag_field="of"):
    """Our own engine. fault: the seeded fault, if any; device: where the finding was made
    seed: of the search that made it
    """

    fault: str | None
    device: str
    seed: int


class Witness(SealedWitness, frozen=True, kw_only=True):
    """What is needed to see a finding of our own engine again.

    subject: the engine with its fault; scenario: with the engine's settings
    digest: hash of everything that the recorded run showed
    """

    subject: EngineSubject
    scenario: OwnScenario
    digest: str

    @property
    def fault(self) -> str | None:
        """The name of the seeded fault, if there is one."""
        return self.subject.fault

    @property
    def seed(self) -> int:
        """Of the search that found it."""
        return self.subject.seed


AnyWitness = TypeVar("AnyWitness", bound=SealedWitness)


def versions() -> dict[str, str]:
    """Versions of what a run depends on."""
    return {
        "racegate": __version__,
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "torch": _version_if_installed("torch"),
    }


def _version_if_installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def recorded_finding(findings: Sequence[Finding]) -> RecordedFinding | None:
    """The finding whose signature is that of the failure, as a witness keeps it."""
    wanted = signature_of(findings)
    for found in findings:
        if found.signature != wanted:
            continue
        if found.race is not None:
            return recorded_race(found.race)
        names = [name for name in (found.op, found.other) if name]
        return RecordedFinding(
            kind=found.kind,
            hazard=found.hazard,
            buffer=found.buffer or "",
            operations=tuple(Operation(name=name) for name in names),
            edge=found.edge or "",
        )
    return None


def recorded_race(race: Race) -> RecordedFinding:
    """A race of a program or of a release as a witness keeps it."""
    return RecordedFinding(
        kind=FindingKind.CONFLICT,
        hazard=race.hazard,
        buffer=race.buffer,
        operations=tuple(
            Operation(name=side.label, lane=side.lane, is_write=side.is_write)
            for side in (race.first, race.second)
        ),
        edge=race.edge,
    )


def sealed(witness: AnyWitness) -> AnyWitness:
    """The witness with its checksum."""
    return msgspec.structs.replace(witness, checksum=checksum_of(msgspec.to_builtins(witness)))


def checksum_of(fields: Mapping[str, object]) -> str:
    """Of the fields as the file has them: a field that a later version adds changes no old file."""
    content = msgspec.json.encode({**fields, "checksum": ""}, order="sorted")
    return hashlib.sha256(content).hexdigest()


def save(witness: SealedWitness, path: Path) -> None:
    """Writes the file whole or not at all: a kill leaves no half a witness."""
    write_whole(path, file_of(msgspec.json.encode(sealed(witness), order="deterministic")))


def save_all(witnesses: Sequence[SealedWitness], path: Path) -> tuple[Path, ...]:
    """One file each: the path, then the path with a number. Returns the files."""
    stem, dot, rest = path.name.partition(".")
    paths = tuple(
        path if number == 1 else path.with_name(f"{stem}-{number}{dot}{rest}")
        for number in range(1, len(witnesses) + 1)
    )
    for witness, target in zip(witnesses, paths, strict=True):
        save(witness, target)
    return paths


def save_first(witness: Witness, path: Path) -> None:
    """Writes the file as the first schema has it, for revisions that read no other."""
    fields = msgspec.to_builtins(witness)
    for name in ("subject", "polls", "finding", "drawn"):
        del fields[name]
    subject = msgspec.structs.asdict(witness.subject)
    fields = {**fields, **subject, "schema": FIRST_SCHEMA}
    fields["checksum"] = checksum_of(fields)
    write_whole(path, file_of(msgspec.json.encode(fields, order="deterministic")))


def file_of(encoded: bytes) -> bytes:
    """JSON as it stands in a file, for people too."""
    text = msgspec.json.format(encoded, indent=1).decode()
    return printable_json(text + "\n").encode()


def subject_of(raw: object, *, source: str) -> str:
    """What a witness is about: engine, program, vllm, sglang or adapter. Raises WitnessError if it
    is none, or of a schema that is not known.
    """
    if not isinstance(raw, dict) or "schema" not in raw:
        raise WitnessError(f"{source}: not a witness file: it has no schema")
    schema = raw["schema"]
    if schema == SCHEMA:
        subject = raw.get("subject")
        return str(subject.get("of")) if isinstance(subject, dict) else ""
    if isinstance(schema, str) and schema in OLDER:
        return OLDER[schema]
    raise WitnessError(
        f"{source}: written as {quoted(schema)}, this racegate reads {SCHEMA!r}; use the version "
        "that wrote it, or record it again"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WitnessReader(Generic[AnyWitness]):
    """Reads the witnesses of one subject. of: its tag; title: in words; kind: the struct

    check: what is asked of a witness beside its fields; raises one of REFUSALS
    converted: the fields of an older file as this schema has them
    """

    of: str
    title: str
    kind: type[AnyWitness]
    check: Callable[[AnyWitness], object]
    converted: Callable[[Raw], Raw] = dict

    def load(self, path: Path) -> AnyWitness:
        """The witness in a file. Raises WitnessError with the file and the reason."""
        return self.read(read_object(path), source=str(path))

    def read(self, raw: object, *, source: str) -> AnyWitness:
        """The witness that JSON says, wherever it was read. Raises WitnessError."""
        if (found := subject_of(raw, source=source)) != self.of:
            raise WitnessError(
                f"{source}: a witness of {quoted(found)}, not of {self.title}: `racegate replay` "
                "takes it"
            )
        assert isinstance(raw, dict)
        is_older = raw["schema"] != SCHEMA
        try:
            witness = msgspec.convert(self.converted(dict(raw)) if is_older else raw, self.kind)
            parse_holds(witness.holds)
            if witness.polls < 0:
                raise WitnessError("a witness has no negative number of polls")
            if raw["schema"] not in UNSEALED:
                check_sum(raw)
            self.check(witness)
        except REFUSALS as error:
            raise WitnessError(f"{source}: {error}") from error
        return sealed(witness) if is_older else witness


# What is said against the content of a file.
REFUSALS = (msgspec.ValidationError, ScheduleError, ScenarioError, WitnessError)


def check_engine(witness: Witness) -> None:
    """Whether an engine can run it. Raises ScenarioError or ScheduleError."""
    validate(witness.scenario)
    parse_schedule(witness.holds)


def load_witness(path: Path) -> Witness:
    """The witness of our own engine in a file. Raises WitnessError with the reason."""
    return ENGINE_WITNESSES.load(path)


def _from_first(raw: Raw) -> Raw:
    names = EngineSubject.__struct_fields__
    return {**moved(raw, "subject", "engine", names), "schema": SCHEMA, "checksum": ""}


def moved(raw: Raw, into: str, tag: str, names: Sequence[str]) -> Raw:
    """The fields with some of them in a tagged table of their own."""
    table = {name: raw.pop(name) for name in names if name in raw}
    return {**raw, into: {"of": tag, **table}}


ENGINE_WITNESSES = WitnessReader(
    of="engine",
    title="racegate's own engine",
    kind=Witness,
    check=check_engine,
    converted=_from_first,
)


def check_sum(raw: dict[str, object]) -> None:
    """Whether a file is as it was written. Raises WitnessError."""
    if raw.get("checksum", "") != checksum_of(raw):
        raise WitnessError(
            "altered since it was written (its checksum does not fit); record it again"
        )


def read_object(path: Path) -> object:
    """What stands in a witness file, whatever its schema. Raises WitnessError."""
    try:
        return read_json(path, WITNESS_BYTES_MAX)
    except ReadError as error:
        raise WitnessError(f"{path}: cannot be read: {error}") from error


def load_witnesses(folder: Path) -> list[tuple[Path, Witness]]:
    """The witnesses of a folder. Raises WitnessError, also if there are none."""
    paths = sorted(folder.glob("*.witness.json"))
    if not paths:
        raise WitnessError(f"{folder}: no *.witness.json here: nothing that must fail")
    return [(path, load_witness(path)) for path in paths]
