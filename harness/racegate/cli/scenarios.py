"""The commands over the scenario scripts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from racegate.cli.options import (
    JsonOption,
    ScriptsOption,
    SeedOption,
    WorkersOption,
    folder_of_scripts,
    loaded_scripts,
    named,
    place_to_write,
    stdout_console,
    tell,
    write_text,
)
from racegate.history.finding import Verdict, exit_code
from racegate.measure.evaluation.coverage import measure_coverage
from racegate.report.measured.features import print_coverage, render_features
from racegate.scenario.files import ScenarioEntry

app = typer.Typer(add_completion=False, no_args_is_help=True, help="The scenario scripts.")


@app.callback()
def scenarios_group() -> None:
    """The scenario scripts."""


@app.command("list")
def scenarios_list(scenarios: ScriptsOption = None, json: JsonOption = None) -> None:
    """Every scenario script: what it exercises and where it comes from."""
    loaded = loaded_scripts(folder_of_scripts(scenarios))
    rows = [
        ScenarioEntry(file=str(path), name=s.name, title=s.title, origin=s.origin)
        for path, s in loaded
    ]
    table = Table("name", "title", "origin")
    for row in rows:
        table.add_row(row.name, row.title, row.origin)
    tell(json, rows, lambda: stdout_console().print(table))


@app.command("features")
def scenarios_features(
    seed: SeedOption = 0,
    count: Annotated[int, typer.Option(min=1, help="Generated scenarios.")] = 3000,
    workers: WorkersOption = 1,
    markdown: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write the table as a page here.", callback=place_to_write
        ),
    ] = None,
    json: JsonOption = None,
) -> None:
    """What generated scenarios reach: features, and pairs of features. All have to be PROVED."""
    with named("scenarios", total=count) as on_scenario:
        coverage = measure_coverage(seed, count, workers=workers, on_scenario=on_scenario)
    tell(json, coverage, lambda: print_coverage(stdout_console(), coverage))
    if markdown is not None:
        command = f"racegate scenarios features --seed {seed} --count {count} --markdown {markdown}"
        write_text(markdown, render_features(coverage, command=command))
    raise SystemExit(exit_code([Verdict.PROVED, *(item.verdict for item in coverage.not_proved)]))
