"""What finding and minimising each fault took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Column, Table

from racegate.measure.evaluation.effort import Effort
from racegate.report.templating import render


def print_efforts(console: Console, efforts: list[Effort]) -> None:
    """What each fault took to find and to minimise."""
    table = Table(
        Column("fault", no_wrap=True),
        "flagged in schedule 1",
        "wrong value",
        "schedules, median / p95",
        "seconds, median / max",
        "holds",
        "requests",
        "shrink runs",
        "shrink s",
    )
    for effort in efforts:
        table.add_row(
            effort.fault,
            "" if effort.flagged_first is None else f"{effort.flagged_first} of {effort.seeds}",
            f"{effort.diverged} of {effort.seeds}",
            _two(effort.schedules_median, effort.schedules_p95),
            _two(effort.seconds_median, effort.seconds_max),
            str(effort.holds),
            str(effort.requests),
            str(effort.shrink_runs),
            f"{effort.shrink_seconds:.1f}",
        )
    console.print(table)


def _two(first: float | None, second: float | None) -> str:
    return "" if first is None or second is None else f"{first:.3g} / {second:.3g}"


def render_efforts(efforts: Sequence[Effort], environment: Mapping[str, str]) -> str:
    """The committed page."""
    return render(
        "effort.md.j2",
        efforts=efforts,
        environment=environment,
        ordering=[effort for effort in efforts if effort.flagged_first is not None],
        logic=[effort for effort in efforts if effort.flagged_first is None],
    )
