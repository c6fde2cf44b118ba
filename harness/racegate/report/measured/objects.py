"""Objects that commands print which measure the tool itself."""

from __future__ import annotations

import msgspec

from racegate.measure.evaluation.effort import Effort
from racegate.measure.evaluation.foreign.results import ReleaseMutation
from racegate.measure.evaluation.mutate import MutantResult
from racegate.measure.evaluation.source.results import SourceReport
from racegate.measure.evaluation.truth_table import TruthCell


class EffortObject(msgspec.Struct, frozen=True, kw_only=True):
    """What finding and minimising each fault took. results: one per fault"""

    schema: str
    environment: dict[str, str]
    results: tuple[Effort, ...]


class HalffixesObject(msgspec.Struct, frozen=True, kw_only=True):
    """The designs of the accepted-count path. cells: a design under a landing, a motion and a cache
    mode
    """

    schema: str
    cells: tuple[TruthCell, ...]


class MutationObject(msgspec.Struct, frozen=True, kw_only=True):
    """Every edge dropped and moved. mutants: one per mutation
    redundant: edges that others imply in every scenario
    """

    schema: str
    environment: dict[str, str]
    mutants: tuple[MutantResult, ...]
    redundant: tuple[str, ...]


class SourceMutationObject(msgspec.Struct, frozen=True, kw_only=True):
    """Mutants of the source. report: what was mutated, and what became of it"""

    schema: str
    environment: dict[str, str]
    report: SourceReport


class ReleaseMutationObject(msgspec.Struct, frozen=True, kw_only=True):
    """Mutants of the source of a release. mutation: what was mutated, and what became of it"""

    schema: str
    environment: dict[str, str]
    mutation: ReleaseMutation
