"""Witnesses of every subject: how each is read, and where a campaign found one."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from racegate.history.witness import (
    ENGINE_WITNESSES,
    DrawnIndex,
    SealedWitness,
    Witness,
    WitnessError,
    WitnessReader,
    read_object,
    sealed,
    subject_of,
)
from racegate.scenario.spec import OwnScenario, Scenario
from racegate.scenario.untrusted.text import quoted
from racegate.targets.adapters.witness import ADAPTER_WITNESSES, AdapterWitness
from racegate.targets.common.witnesses.witness import ReleaseWitness
from racegate.targets.program.workflow.witness import PROGRAM_WITNESSES
from racegate.targets.sglang.witness import SGLANG_WITNESSES
from racegate.targets.vllm.witness import VLLM_WITNESSES

Reader: TypeAlias = WitnessReader[Any]
# By the tag of the subject.
READERS: dict[str, Reader] = {
    reader.of: reader
    for reader in (
        ENGINE_WITNESSES,
        PROGRAM_WITNESSES,
        VLLM_WITNESSES,
        SGLANG_WITNESSES,
        ADAPTER_WITNESSES,
    )
}


def any_witness(path: Path) -> SealedWitness:
    """The witness in a file, whatever it is of. Raises WitnessError."""
    return any_witness_in(read_object(path), source=str(path))


def any_witness_in(raw: object, *, source: str) -> SealedWitness:
    """The same of what was read elsewhere. Raises WitnessError."""
    witness: SealedWitness = reader_of(raw, source=source).read(raw, source=source)
    return witness


def reader_of(raw: object, *, source: str) -> Reader:
    """What reads a witness of this subject. Raises WitnessError."""
    subject = subject_of(raw, source=source)
    if subject not in READERS:
        known = ", ".join(READERS)
        raise WitnessError(f"{source}: a witness of {quoted(subject)}, which is none of {known}")
    return READERS[subject]


def drawn_at(witness: SealedWitness) -> DrawnIndex:
    """Where a campaign found it. Raises WitnessError if none did.

    Earlier versions did not write it down: it is then in the name of a scenario of our own engine.
    """
    if witness.drawn is not None:
        return witness.drawn
    if not isinstance(witness, Witness):
        raise WitnessError(f"{quoted(witness.title)} was found by no campaign")
    name = witness.scenario.name
    try:
        return DrawnIndex(seed=witness.seed, index=int(name.rpartition("-")[2]))
    except ValueError as error:
        raise WitnessError(
            f"{quoted(name)} is no scenario of a campaign: no index behind it"
        ) from error


def found_at(witness: SealedWitness, seed: int, index: int) -> SealedWitness:
    """The witness of a scenario that a campaign drew. Sealed."""
    return sealed(msgspec.structs.replace(witness, drawn=DrawnIndex(seed=seed, index=index)))


def own_witness(witness: SealedWitness) -> Witness:
    """The witness as one of racegate's own engine. Raises WitnessError if it is none."""
    if not isinstance(witness, Witness):
        raise WitnessError(
            f"{quoted(witness.title)} was not found in racegate's own engine: `racegate replay` "
            "shows it again"
        )
    return witness


def scenario_in(witness: SealedWitness) -> Scenario | OwnScenario | None:
    """What was run; None for a program."""
    if isinstance(witness, Witness | ReleaseWitness | AdapterWitness):
        return witness.scenario
    return None


def requests_in(witness: SealedWitness) -> int:
    """How many requests its scenario has."""
    scenario = scenario_in(witness)
    return 0 if scenario is None else len(scenario.requests)
