"""The command that measures what generated scenarios reach."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from racegate.cli.options import JsonOption, SeedOption, progress_bar, write_json, write_text
from racegate.evaluation.coverage import measure_coverage
from racegate.explore.features.table import missing_pairs
from racegate.jobs.environment import environment
from racegate.report.features import render_features


def features(
    seed: SeedOption = 0,
    scenarios: Annotated[int, typer.Option(min=1, help="How many to generate and run.")] = 3000,
    markdown: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the table as Markdown here.")
    ] = None,
    json: JsonOption = None,
) -> None:
    """Counts features, and pairs of them, in generated scenarios. 1: not all of them are PROVED."""
    with progress_bar() as progress:
        task = progress.add_task("scenarios", total=scenarios)
        coverage = measure_coverage(
            seed, scenarios, on_scenario=lambda index: progress.update(task, completed=index)
        )
    if json is not None:
        write_json(json, coverage)
    command = f"python -m racegate.cli.features {shlex.join(sys.argv[1:])}"
    page = render_features(coverage, command=command, environment=environment())
    if markdown is not None:
        write_text(markdown, page)
    missing = missing_pairs(coverage.table)
    if json != "-":
        print(f"{coverage.table.runs} scenarios, {len(missing)} possible pairs missing")
        for item in coverage.not_proved:
            print(f"scenario {item.index} of seed {seed}: {item.verdict}: {item.message}")
    raise SystemExit(1 if coverage.not_proved else 0)


if __name__ == "__main__":
    typer.run(features)
