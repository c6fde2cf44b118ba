"""The commands over the scenario scripts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
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
from racegate.measure.evaluation.cover_scripts import CoverObject, covered_by, covering_scripts
from racegate.measure.evaluation.coverage import measure_coverage
from racegate.measure.evaluation.covering import CoverSpec
from racegate.report.measured.features import print_cover, print_coverage, render_features
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


@app.command("cover")
def scenarios_cover(
    scenarios: ScriptsOption = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            file_okay=False,
            help="Make scripts with the pairs that are missing, and write them here.",
        ),
    ] = None,
    start: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            exists=True,
            file_okay=False,
            help="Scripts that an array begins with, beside those that are drawn.",
        ),
    ] = None,
    seed: SeedOption = 0,
    draws: Annotated[int, typer.Option(min=1, help="Scenarios drawn for an array.")] = 200,
    tries: Annotated[int, typer.Option(min=0, help="Crossings for each script of it.")] = 200,
    shrinks: Annotated[int, typer.Option(min=0, help="Runs to make each smaller.")] = 60,
    json: JsonOption = None,
) -> None:
    """Which pairs of features the scripts go through, float and exact apart, and which of those
    that are possible none has; with --out a covering array of those.
    """
    loaded = loaded_scripts(folder_of_scripts(scenarios))
    with named("scripts", total=len(loaded)) as on_script:
        found = covered_by((one for _, one in loaded), on_script)
    if out is not None:
        first = () if start is None else tuple(one for _, one in loaded_scripts(start))
        spec = CoverSpec(start=first, seed=seed, draws=draws, tries=tries, shrinks=shrinks)
        found = _with_array(found, spec, out, taken=[one.name for _, one in loaded])
    tell(json, found, lambda: print_cover(stdout_console(), found))
    is_whole = not any(found.missing.values()) or out is not None
    raise SystemExit(exit_code([Verdict.PROVED if is_whole else Verdict.INCONCLUSIVE]))


def _with_array(
    found: CoverObject, spec: CoverSpec, out: Path, *, taken: Sequence[str]
) -> CoverObject:
    """Writes the scripts that have what is missing. taken: names that are of other scripts"""
    names = []
    out.mkdir(parents=True, exist_ok=True)
    with named("array") as on_row:
        for script in covering_scripts(
            found.missing, spec, lambda row, left: on_row(f"{left} pairs left"), taken=taken
        ):
            write_text(out / f"{script.name.replace('-', '_')}.toml", script.text)
            names.append(script.name)
    return msgspec.structs.replace(found, written=tuple(names))


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
