"""What generated scenarios reach: a line for the terminal, and the committed page."""

from __future__ import annotations

from rich.console import Console

from racegate.explore.features.summary import RARE, summarise
from racegate.measure.evaluation.cover_scripts import CoverObject
from racegate.measure.evaluation.coverage import Coverage
from racegate.report.search import print_pairs
from racegate.report.templating import render
from racegate.report.text import pairs_text


def print_coverage(console: Console, coverage: Coverage) -> None:
    """How many pairs occurred, which did not, and what is not PROVED."""
    summary = summarise(coverage.table)
    print_pairs(console, summary)
    for first, second in summary.missing:
        console.print(f"missing: {first} and {second}")
    for item in coverage.not_proved:
        where = f"scenario {item.index} of seed {coverage.seed}"
        console.print(f"{where} is {item.verdict}: {item.message}")


def print_cover(console: Console, found: CoverObject) -> None:
    """How many pairs scripts cover, float and exact apart, and which they miss."""
    console.print(f"{found.scripts} scripts: {pairs_text(found.pairs)}")
    for numerics, missing in found.missing.items():
        for first, second in missing:
            console.print(f"missing in {numerics}: {first} and {second}")
    for name in found.written:
        console.print(f"written: {name}")


def render_features(coverage: Coverage, *, command: str) -> str:
    """The committed page. command: what made it."""
    return render(
        "features.md.j2",
        coverage=coverage,
        command=command,
        summary=summarise(coverage.table),
        rare_below=RARE,
    )
