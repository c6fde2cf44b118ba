"""Targets side by side, in the terminal: how far each is, and which signatures it shows."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from rich.console import Console
from rich.table import Column, Table

from racegate.jobs.campaign import CampaignProgress
from racegate.jobs.fleet.matrix import SignatureRow, TargetColumn, TargetMatrix
from racegate.jobs.fleet.outcome import FleetObject
from racegate.report.text import print_breakages
from racegate.scenario.untrusted.console import line


def live_table(live: Mapping[str, CampaignProgress]) -> Table:
    """A row for each target."""
    table = Table("target", "scenarios", "schedules", "signatures")
    for name, one in live.items():
        table.add_row(name, str(one.scenarios), str(one.schedules), str(one.signatures))
    return table


def print_fleet(console: Console, found: FleetObject) -> None:
    """The matrix, what was missed, and what went wrong with the harness."""
    print_matrix(console, found.matrix)
    for one in found.missed:
        console.print(line(("MISSED", "bold yellow"), f" {one.target}: {one.why}"))
    for text in found.losses:
        console.print(line(("lost", "yellow"), f": {text}"))
    print_breakages(console, found.breakages)


def print_matrix(console: Console, matrix: TargetMatrix) -> None:
    """Each target in a line, then each signature with who shows it, and how to see it again."""
    table = Table("target", "what", "scenarios", "not run", "set aside", "verdicts")
    for one in matrix.targets:
        table.add_row(
            one.name,
            one.title,
            str(one.scenarios),
            str(one.not_run),
            str(len(one.set_aside)),
            ", ".join(f"{count} {name}" for name, count in one.verdicts.items()),
        )
    console.print(table)
    if not matrix.rows:
        console.print("no finding")
        return
    names = [one.name for one in matrix.targets]
    table = Table(Column("signature", overflow="fold"), *names)
    for row in matrix.rows:
        table.add_row(row.signature, *(cell_text(row, one) for one in matrix.targets))
    console.print(table)
    for row in matrix.rows:
        for cell in row.cells:
            console.print(line(f"{cell.target}: {cell.replay}"), soft_wrap=True)  # to be copied


def cell_text(row: SignatureRow, target: TargetColumn) -> str:
    """How often a target showed a signature, and when first; a dash where it did not."""
    cell = next((cell for cell in row.cells if cell.target == target.name), None)
    if cell is None:
        return f"- of {target.judged}" if target.judged else ""
    since = ""
    if cell.seen is not None:
        since = f", since {datetime.fromtimestamp(cell.seen.first, UTC):%Y-%m-%d %H:%M}"
    return f"{cell.hits} of {target.judged}, first in {cell.scenario}{since}"
