"""Targets: seeded faults, and mutants of edges and of the source that the gate is known to kill."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

import msgspec

from racegate.check.checker import Checker
from racegate.faults.catalogue import FAULTS, find_fault
from racegate.faults.fault import Fault, FaultKind
from racegate.faults.mutations import Mutation
from racegate.measure.evaluation.mutate import Fate, as_fault, mutations_of
from racegate.measure.evaluation.source.by_gate import load_scripts
from racegate.measure.evaluation.source.exchange import changed_function, compiled
from racegate.measure.evaluation.source.results import SourceFate, SourceMutant
from racegate.measure.evaluation.source.sources import ROOT, files_of, find_source, mutants_of
from racegate.scenario.strict import StrictStruct

T = TypeVar("T")

ENGINE = "engine"
REPORTS = ROOT / "reports" / "faults"
MUTANTS = REPORTS / "mutants.json"
SOURCE = REPORTS / "source_engine.json"


class TargetKind(StrEnum):
    """fault: of the catalogue; edge: one edge at a wrong place; source: one edit of the engine"""

    FAULT = "fault"
    EDGE = "edge"
    SOURCE = "source"


class HuntTarget(StrictStruct, frozen=True, kw_only=True):
    """Something to be noticed. mutation: of an edge; mutant: of the source"""

    name: str
    kind: TargetKind
    mutation: Mutation | None = None
    mutant: SourceMutant | None = None

    @property
    def fault(self) -> Fault | None:
        """What is seeded into the engine; nothing, where its source is another."""
        if self.mutation is not None:
            return as_fault(self.mutation)
        return find_fault(self.name) if self.kind is TargetKind.FAULT else None


def all_targets() -> list[HuntTarget]:
    """All of a checkout: seconds of a core, to find where edges are waited for and what can be
    edited. Mutants are those that the committed reports call killed.
    """
    return [*_faults(), *_edge_mutants(), *_source_mutants()]


def _faults() -> Iterator[HuntTarget]:
    for fault in FAULTS:
        if fault.kind is not FaultKind.CONTROL:
            yield HuntTarget(name=fault.name, kind=TargetKind.FAULT)


class _MutantRow(msgspec.Struct, frozen=True):
    mutant: str
    fate: str


class _MutantRows(msgspec.Struct, frozen=True):
    mutants: tuple[_MutantRow, ...]


def _edge_mutants() -> Iterator[HuntTarget]:
    rows = _read(MUTANTS, _MutantRows).mutants
    killed = {row.mutant for row in rows if row.fate == Fate.KILLED}
    scripts = load_scripts(ROOT / "scenarios").values()
    for mutation in mutations_of(Checker(script).execute().trace for script in scripts):
        if mutation.text in killed:
            yield HuntTarget(name=mutation.text, kind=TargetKind.EDGE, mutation=mutation)


class _SourceRow(msgspec.Struct, frozen=True):
    key: str
    fate: str


class _SourceRows(msgspec.Struct, frozen=True):
    results: tuple[_SourceRow, ...]


class _SourceFile(msgspec.Struct, frozen=True):
    report: _SourceRows


def _source_mutants() -> Iterator[HuntTarget]:
    """Without those that only an import executes: the engine would have to be imported anew."""
    rows = _read(SOURCE, _SourceFile).report.results
    killed = {row.key for row in rows if row.fate == SourceFate.KILLED}
    for path in files_of(find_source(ENGINE)):
        before = path.read_bytes()
        for mutant in mutants_of(path):
            if mutant.key in killed:
                after = mutant.edit.apply(before)
                if changed_function(compiled(before, path), compiled(after, path)) is not None:
                    name = f"{mutant.name} ({mutant.key})"
                    yield HuntTarget(name=name, kind=TargetKind.SOURCE, mutant=mutant)


def _read(path: Path, kind: type[T]) -> T:
    return msgspec.json.decode(path.read_bytes(), type=kind)
