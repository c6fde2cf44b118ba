"""Witnesses of programs: one versioned JSON file that shows one DIVERGENT finding again.

Operations are named by kind, file, function and count, so that a witness stands when lines move.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from racegate.history.finding import Race, Side
from racegate.history.schedule import ScheduleError, parse_hold
from racegate.history.witness import (
    WitnessError,
    check_sum,
    checksum_of,
    file_of,
    read_object,
    versions,
)
from racegate.interpose.outcome import Observation
from racegate.scenario.strict import StrictStruct
from racegate.scenario.untrusted.files import write_whole
from racegate.targets.program.explore import Judged
from racegate.targets.program.judge import Verdicts
from racegate.targets.program.launch import Program

SCHEMA = "racegate.program/1"


class Operation(StrictStruct, frozen=True, kw_only=True):
    """One of the two operations of a finding.

    name: kind, file, function and count; lane: the stream or thread; is_write: it writes
    """

    name: str
    lane: str
    is_write: bool


class ProgramWitness(StrictStruct, frozen=True, kw_only=True):
    """What is needed to see a finding of a program again.

    title: in words; argv: the script with its arguments, as from the folder it was started in
    holds: the smallest set that shows it, as text; polls: how often queries are first answered
        "not ready"
    signature: what a replay has to show; buffer: what holds the bytes; first, second: the two
        operations; edge: what would order them, by the lines of that time
    expected: observations without holds; actual: with them; ending: how the run under them ended,
        if not as the other
    versions: of what it ran on; checksum: hash of all other fields
    """

    schema: str
    title: str
    argv: tuple[str, ...]
    holds: tuple[str, ...]
    polls: int
    signature: str
    buffer: str
    first: Operation
    second: Operation
    edge: str
    expected: tuple[Observation, ...]
    actual: tuple[Observation, ...]
    ending: str
    versions: dict[str, str]
    checksum: str = ""


def save_witnesses(verdicts: Verdicts, program: Program, path: Path) -> tuple[Path, ...]:
    """One file for each DIVERGENT finding: path, then path with a number. Returns the files."""
    findings = {finding.signature: finding for finding in verdicts.outcome.findings}
    judged = [one for one in verdicts.search.judged if one.hold] if verdicts.search else []
    paths = tuple(_numbered(path, number) for number in range(1, len(judged) + 1))
    for one, target in zip(judged, paths, strict=True):
        finding = findings[one.signature]
        witness = witness_of(finding, one, program, torch=verdicts.outcome.torch_version)
        write_whole(target, file_of(msgspec.json.encode(witness)))
    return paths


def witness_of(finding: Race, judged: Judged, program: Program, *, torch: str) -> ProgramWitness:
    """torch: version of the torch it was found with."""
    witness = ProgramWitness(
        schema=SCHEMA,
        title=_title(finding),
        argv=program.argv,
        holds=tuple(f"{operation} until {until}" for operation, until in judged.hold),
        polls=judged.polls,
        signature=finding.signature,
        buffer=finding.buffer,
        first=_operation(finding.first),
        second=_operation(finding.second),
        edge=finding.edge,
        expected=judged.expected,
        actual=judged.actual,
        ending=judged.ending,
        versions={**versions(), "torch": torch},
    )
    checksum = checksum_of(msgspec.to_builtins(witness))
    return msgspec.structs.replace(witness, checksum=checksum)


def load_program_witness(path: Path) -> ProgramWitness:
    """The witness in a file. Raises WitnessError with the reason."""
    raw = read_object(path)
    if not isinstance(raw, dict) or raw.get("schema") != SCHEMA:
        raise WitnessError(f"{path}: not a witness of a program: its schema is not {SCHEMA!r}")
    try:
        witness = msgspec.convert(raw, ProgramWitness)
        for hold in witness.holds:
            parse_hold(hold)
    except (msgspec.ValidationError, ScheduleError) as error:
        raise WitnessError(f"{path}: {error}") from error
    if not witness.holds or witness.polls < 0:
        raise WitnessError(f"{path}: a witness has a hold, and no negative number of polls")
    check_sum(raw, path)
    return witness


def is_program_witness(path: Path) -> bool:
    """Whether a witness file is a program's, not an engine's. Raises WitnessError."""
    raw = read_object(path)
    return isinstance(raw, dict) and raw.get("schema") == SCHEMA


def _numbered(path: Path, number: int) -> Path:
    stem, dot, rest = path.name.partition(".")
    return path if number == 1 else path.with_name(f"{stem}-{number}{dot}{rest}")


def _title(finding: Race) -> str:
    first, second = finding.first, finding.second
    return (
        f"{finding.buffer}: {first.operation} on {first.lane}, {second.operation} on {second.lane}"
    )


def _operation(side: Side) -> Operation:
    return Operation(name=side.label, lane=side.lane, is_write=side.is_write)
