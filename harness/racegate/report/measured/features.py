"""What generated scenarios reach: a line for the terminal, and the committed page."""

from __future__ import annotations

from rich.console import Console

from racegate.explore.features.summary import RARE, summarise
from racegate.measure.evaluation.coverage import Coverage
from racegate.report.search import print_pairs
from racegate.report.templating import render


def print_coverage(console: Console, coverage: Coverage) -> None:
    """How many pairs occurred, which did not, and what is not PROVED."""
    summary = summarise(coverage.table)
    print_pairs(console, summary)
    for first, second in summary.missing:
        console.print(f"missing: {first} and {second}")
    for item in coverage.not_proved:
        where = f"scenario {item.index} of seed {coverage.seed}"
        console.print(f"{where} is {item.verdict}: {item.message}")


def render_features(coverage: Coverage, *, command: str) -> str:
    """The committed page. command: what made it."""
    return render(
        "features.md.j2",
        coverage=coverage,
        command=command,
        summary=summarise(coverage.table),
        rare_below=RARE,
    )
