"""The commands over the scenario scripts."""

from __future__ import annotations

from pathlib import Path

import typer
from rich.table import Table

from racegate.cli.options import JsonOption, ScenariosOption, stdout_console, write_json
from racegate.scenario.files import ScenarioEntry, load_all, scenario_paths

app = typer.Typer(add_completion=False, no_args_is_help=True, help="The scenario scripts.")


@app.callback()
def scenarios_group() -> None:
    """The scenario scripts."""


@app.command("list")
def scenarios_list(scenarios: ScenariosOption = Path("scenarios"), json: JsonOption = None) -> None:
    """Every scenario script: what it exercises and where it comes from."""
    loaded = load_all(scenario_paths(scenarios))
    rows = [
        ScenarioEntry(file=str(path), name=s.name, title=s.title, origin=s.origin)
        for path, s in loaded
    ]
    if json is not None:
        write_json(json, rows)
        return
    table = Table("name", "title", "origin")
    for row in rows:
        table.add_row(row.name, row.title, row.origin)
    stdout_console().print(table)
