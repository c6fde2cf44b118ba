"""Witnesses of programs: one versioned JSON file that shows one DIVERGENT finding again.

Operations are named by kind, file, function and count, so that a witness stands when lines move.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from racegate.history.finding import FindingKind, Race, Verdict
from racegate.history.schedule import texts_of
from racegate.history.witness import (
    SCHEMA,
    Raw,
    SealedWitness,
    WitnessError,
    WitnessReader,
    moved,
    recorded_race,
    save_all,
    sealed,
    versions,
)
from racegate.interpose.outcome import CompileMode, DeviceKind, Observation, Outcome
from racegate.scenario.strict import StrictStruct
from racegate.targets.common.landings import LandingRun
from racegate.targets.program.judge import ProgramVerdict
from racegate.targets.program.launch import Program, checked_program
from racegate.targets.program.words import ending_of


class ProgramSubject(StrictStruct, frozen=True, kw_only=True, tag="program", tag_field="of"):
    """A program. argv: the script with its arguments, as from the folder it was started in

    gpu, memory_bytes: what the virtual device said of itself, as in `Program`
    compiling: how its compiled regions ran; plain Python in files that do not say
    ranks, gpus: as how many ranks it ran, and how many GPUs it saw, as in `Program`
    """

    argv: tuple[str, ...]
    gpu: str = ""
    memory_bytes: int = 0
    compiling: CompileMode | None = CompileMode.EAGER
    ranks: int = 0
    gpus: int = 0

    def checked(self, kind: DeviceKind, *, timeout_s: float = 0.0) -> Program:
        """The program, to be run on such a device: a real one is what it is. Raises BadInput if it
        is not where it was, seen from this folder.
        """
        is_virtual = kind is DeviceKind.VIRTUAL
        checked = checked_program(
            self.argv,
            timeout_s=timeout_s,
            gpu=self.gpu if is_virtual else "",
            memory_bytes=self.memory_bytes if is_virtual else 0,
            compiling=self.compiling,
            ranks=self.ranks,
        )
        return replace(checked, gpus=self.gpus)


class ProgramWitness(SealedWitness, frozen=True, kw_only=True):
    """What is needed to see a finding of a program again.

    subject: the program; expected: observations without holds; actual: with them
    ending: how the run under them ended, if not as the other
    """

    subject: ProgramSubject
    expected: tuple[Observation, ...]
    actual: tuple[Observation, ...]
    ending: str

    @property
    def argv(self) -> tuple[str, ...]:
        """The script with its arguments."""
        return self.subject.argv


def save_witnesses(verdicts: ProgramVerdict, program: Program, path: Path) -> tuple[Path, ...]:
    """One file for each DIVERGENT finding: path, then path with a number. Returns the files."""
    return save_all(witnesses_of(verdicts, program), path)


def witnesses_of(verdicts: ProgramVerdict, program: Program) -> list[ProgramWitness]:
    """One for each DIVERGENT finding."""
    shown = [(one.race, one.landing) for one in verdicts.judged]
    return [witness_of(race, run, program) for race, run in shown if run is not None]


def witness_of(race: Race, landing: LandingRun[Outcome], program: Program) -> ProgramWitness:
    """The witness of a race that a run under holds shows."""
    base, held = landing.base, landing.what
    return sealed(
        ProgramWitness(
            title=_title(race),
            subject=ProgramSubject(
                argv=program.argv,
                gpu=program.gpu,
                memory_bytes=program.memory_bytes,
                compiling=program.compiling,
                ranks=program.ranks,
                gpus=program.gpus,
            ),
            holds=texts_of(landing.holds),
            polls=landing.polls,
            signature=race.signature,
            finding=recorded_race(race),
            verdict=Verdict.DIVERGENT,
            expected=base.observations,
            actual=held.observations,
            ending=ending_of(landing),
            versions={**versions(), "torch": base.torch_version},
        )
    )


def check_program(witness: ProgramWitness) -> None:
    """Whether there is something to be held. Raises WitnessError."""
    if not witness.holds:
        raise WitnessError("a witness of a program has a hold")


def _from_first(raw: Raw) -> Raw:
    """From `racegate.program/1`, whose finding stands among the other fields."""
    names = ("buffer", "edge", "first", "second")
    found = {name: raw.pop(name) for name in names if name in raw}
    operations = [found.pop(name) for name in ("first", "second") if name in found]
    finding = {"kind": FindingKind.CONFLICT.value, "operations": operations, **found}
    fields = {**raw, "schema": SCHEMA, "checksum": "", "finding": finding}
    return {**moved(fields, "subject", "program", ("argv",)), "verdict": Verdict.DIVERGENT.value}


PROGRAM_WITNESSES = WitnessReader(
    of="program",
    title="a program",
    kind=ProgramWitness,
    check=check_program,
    converted=_from_first,
)


def _title(race: Race) -> str:
    first, second = race.first, race.second
    return f"{race.buffer}: {first.operation} on {first.lane}, {second.operation} on {second.lane}"
