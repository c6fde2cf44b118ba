"""Mutants of the source for the terminal and as a committed page."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.table import Column, Table

from racegate.evaluation.source.results import SourceFate, SourceReport, SourceResult, score_of
from racegate.report.objects import SourceMutationObject
from racegate.report.templating import render
from racegate.scenario.outside.console import lines

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
        f"inconclusive, {score.unreached} in lines that nobody runs: {score.score:.1f} %"
    )


def render_source_mutants(found: SourceMutationObject) -> str:
    """The committed page."""
    report = found.report
    by_file: dict[str, list[SourceResult]] = {}
    for result in report.results:
        by_file.setdefault(result.file, []).append(result)
    return render(
        "source.md.j2",
        report=report,
        environment=found.environment,
        score=score_of(report.results),
        files={name: score_of(results) for name, results in by_file.items()},
        operators=_by_operator(report.results),
        missed=[result for result in report.results if result.fate in MISSED],
        equivalent=[result for result in report.results if result.reason],
        cpu_s=sum(result.cpu_s for result in report.results),
    )


def _by_operator(results: Iterable[SourceResult]) -> dict[str, object]:
    found: dict[str, list[SourceResult]] = {}
    for result in results:
        found.setdefault(result.operator, []).append(result)
    return {name: score_of(some) for name, some in sorted(found.items())}
