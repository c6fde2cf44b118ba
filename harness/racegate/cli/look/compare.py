"""The command campaign compare."""

from __future__ import annotations

import math
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Column, Table

from racegate.cli.options import (
    JsonOption,
    WorkersOption,
    fail,
    named,
    place_to_write,
    stdout_console,
    tell,
    write_text,
)
from racegate.history.exit_code import ExitCode
from racegate.measure.evaluation.learning.results import Approach, Interval, LearnObject, LearnSpec
from racegate.report.measured.effort import render_comparison

app = typer.Typer(add_completion=False)


@app.command()
def compare(
    seeds: Annotated[int, typer.Option(min=1, help="Of each approach.")] = 12,
    scenarios: Annotated[int, typer.Option(min=1, help="Of each seed at most.")] = 320,
    approaches: Annotated[
        list[Approach] | None,
        typer.Option("--approach", help="Beside uniform generation; default: all."),
    ] = None,
    every: Annotated[int, typer.Option(min=1, help="Only every so many-th fault and mutant.")] = 1,
    seconds: Annotated[
        float, typer.Option(min=0.0, help="Begin nothing after so many seconds.")
    ] = math.inf,
    keep: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Go on from this file, and add to it.")
    ] = None,
    workers: WorkersOption = 1,
    markdown: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write it as Markdown here.", callback=place_to_write),
    ] = None,
    json: JsonOption = None,
) -> None:
    """Measure what search that learns is worth: schedules until the slowest tenth of all faults and
    mutants is noticed, beside uniform generation. 4 as long as something is missing.
    """
    for library in ("libcst", "coverage"):
        if find_spec(library) is None:
            fail(f"mutants of the source need {library}: pip install 'racegate[test]'")
    # Only here is libcst needed.
    from racegate.measure.evaluation.learning.job import compare as run_comparison

    chosen = tuple(
        approaches or (approach for approach in Approach if approach is not Approach.UNIFORM)
    )
    asked = LearnSpec(approaches=chosen, seeds=seeds, scenarios=scenarios, every=every)
    with named("targets") as on_done:
        found = run_comparison(asked, workers=workers, seconds=seconds, keep=keep, on_done=on_done)
    if markdown is not None:
        write_text(markdown, render_comparison(found))
    tell(json, found, lambda: _show(found))
    raise typer.Exit(ExitCode.CLEAN if found.is_complete else ExitCode.INCONCLUSIVE)


def _show(found: LearnObject) -> None:
    console = stdout_console()
    console.print(f"{found.targets} faults and mutants, {len(found.slow)} of them slow")
    table = Table(
        "approach", "seeds", "targets", "found", "uniform", "more (95 %)", "sooner (95 %)"
    )
    for row in found.approaches:
        table.add_row(
            row.approach,
            str(row.seeds),
            str(row.targets),
            f"{row.found:.1f}",
            f"{row.uniform:.1f}",
            _text(row.more),
            _text(row.sooner),
        )
    console.print(table)
    each = Table(Column("slow target", overflow="fold"), *found.spec.with_uniform)
    for one in found.slow:
        cells = (one.schedules.get(approach) for approach in found.spec.with_uniform)
        each.add_row(one.target, *("" if cell is None else f"{cell:.0f}" for cell in cells))
    console.print(each)
    if not found.is_complete:
        console.print("not complete: the same command goes on, with --keep")


def _text(interval: Interval) -> str:
    return f"{interval.value:.2f} ({interval.low:.2f} to {interval.high:.2f})"
