"""Tables of faults and mutants for the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean

from rich.console import Console
from rich.table import Column, Table

from racegate.faults.fault import Fault
from racegate.measure.evaluation.foreign.results import ReleaseMutation, UnrunEntry
from racegate.measure.evaluation.mutate import Fate, MutantResult, MutationReport
from racegate.measure.evaluation.source.results import (
    SourceFate,
    SourceReport,
    SourceResult,
    SourceScore,
    score_of,
)
from racegate.measure.evaluation.source.sources import BY_GATE
from racegate.report.measured.objects import ReleaseMutationObject, SourceMutationObject
from racegate.report.templating import render
from racegate.scenario.untrusted.console import lines


def print_faults(console: Console, faults: Iterable[Fault]) -> None:
    """One line per fault, its name whole."""
    table = Table("#", Column("name", no_wrap=True), "kind", "needs", "origin", "first difference")
    for fault in faults:
        needs = "".join(fault.needs)
        number = str(fault.number or "")
        table.add_row(number, fault.name, fault.kind, needs, fault.origin, fault.expect)
    console.print(table)


def print_mutants(console: Console, report: MutationReport) -> None:
    """Every mutant with what killed it, or the path that makes it harmless."""
    table = Table("mutant", "fate", "killed by, or still ordered by")
    for mutant in report.mutants:
        shown = [f"{mutant.scenario}: {mutant.signature}"]
        if mutant.fate is not Fate.KILLED:
            shown = [*mutant.path[:1], *(f"-> {step}" for step in mutant.path[1:])]
        table.add_row(mutant.mutant, mutant.fate, lines(shown))
    console.print(table)
    fates = Counter(mutant.fate for mutant in report.mutants)
    counted = ", ".join(f"{count} {fate}" for fate, count in sorted(fates.items()))
    console.print(f"{len(report.mutants)} mutants: {counted}")
    edges = ", ".join(report.redundant) or "none"
    console.print(f"edges that others imply in every scenario: {edges}")


def render_mutants(report: MutationReport, environment: Mapping[str, str]) -> str:
    """The committed page of a report."""
    by_edge: dict[str, list[MutantResult]] = {}
    for mutant in report.mutants:
        by_edge.setdefault(mutant.edge, []).append(mutant)
    return render(
        "mutants.md.j2",
        report=report,
        environment=environment,
        fates=_fates(report.mutants),
        edges={name: _fates(mutants) for name, mutants in by_edge.items()},
    )


def _fates(mutants: Sequence[MutantResult]) -> dict[str, int]:
    """How many there are of each fate, and in all."""
    counts = Counter(str(mutant.fate) for mutant in mutants)
    return {"total": len(mutants)} | {str(fate): counts[fate] for fate in Fate}


# A reader of the page looks for these: what nobody noticed.
MISSED = (SourceFate.SURVIVED, SourceFate.UNREACHED, SourceFate.INCONCLUSIVE)


def print_source_mutants(console: Console, report: SourceReport) -> None:
    """What was missed, line by line, and the score."""
    table = Table("where", Column("before and after", ratio=1), "fate")
    for result in report.results:
        if result.fate in MISSED:
            where = f"{result.file}:{result.line}"
            table.add_row(where, lines([f"- {result.before}", f"+ {result.after}"]), result.fate)
    if table.row_count:
        console.print(table)
    score = score_of(report.results)
    console.print(
        f"{score.mutants} of {report.total} mutants of {report.source}: {score.killed} killed, "
        f"{score.equivalent} equivalent, {score.survived} survived, {score.inconclusive} "
        f"inconclusive, {score.unreached} in lines that nobody runs: {score.percent()}"
    )
    if not score.matter:
        console.print("No mutant that matters was judged: nothing is known of what is noticed.")


def render_source_mutants(found: SourceMutationObject) -> str:
    """The committed page."""
    report = found.report
    features = _scores(report.results, lambda result: result.feature)
    mattering = [one.score for one in features.values() if one.matter]
    return render(
        "source.md.j2",
        report=report,
        by_gate=report.source in BY_GATE,
        environment=found.environment,
        # Of the examples of one test the page needs no more than their number, which it has.
        left_out=list(dict.fromkeys(name.partition("[")[0] for name in report.failing)),
        score=score_of(report.results),
        files=_scores(report.results, lambda result: result.file),
        operators=_scores(report.results, lambda result: result.operator),
        features=features,
        mean_of_features=f"{fmean(mattering):.1f} %" if mattering else "–",
        missed=[result for result in report.results if result.fate in MISSED],
        equivalent=[result for result in report.results if result.reason],
        cpu_s=sum(result.cpu_s for result in report.results),
    )


def render_release_mutants(found: ReleaseMutationObject, command: str) -> str:
    """The committed page of a release's mutants. command: that makes it again"""
    mutation = found.mutation
    results = mutation.report.results
    lacks = Counter(lack_of(text) for text in mutation.missing.values())
    return render(
        "release_mutants.md.j2",
        lacks=lacks,
        shown=score_of(
            [one for one in results if lack_of(mutation.missing.get(one.key, "")) != CONFIGURATION]
        ),
        mutation=mutation,
        report=mutation.report,
        command=command,
        environment=found.environment,
        score=score_of(results),
        files=_scores(results, lambda result: result.file),
        operators=_scores(results, lambda result: result.operator),
        killers=Counter(result.by for result in results if result.fate is SourceFate.KILLED),
        missed=[result for result in results if result.fate in MISSED],
        equivalent=[result for result in results if result.fate is SourceFate.EQUIVALENT],
        unrun=_unrun(mutation),
        cpu_s=sum(result.cpu_s for result in results),
    )


# What is said of a survivor begins with what it lacks: another configuration of the engine, a
# scenario or an observation.
CONFIGURATION = "configuration"
NOT_LOOKED_AT = "nobody has looked"


def lack_of(text: str) -> str:
    """The first words of what would notice a survivor."""
    return text.partition(":")[0] or NOT_LOOKED_AT


def _unrun(mutation: ReleaseMutation) -> dict[str, tuple[list[UnrunEntry], list[str]]]:
    """By file: functions that run in part, and the names of those that never run."""
    found: dict[str, tuple[list[UnrunEntry], list[str]]] = {}
    for one in mutation.unrun:
        in_part, never = found.setdefault(one.file, ([], []))
        if one.is_whole:
            never.append(one.scope)
        else:
            in_part.append(one)
    return found


def _scores(
    results: Iterable[SourceResult], part_of: Callable[[SourceResult], str]
) -> dict[str, SourceScore]:
    """The sums by part, in the order of the alphabet."""
    found: dict[str, list[SourceResult]] = {}
    for result in results:
        found.setdefault(part_of(result), []).append(result)
    return {name: score_of(some) for name, some in sorted(found.items())}
