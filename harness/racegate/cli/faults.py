"""Commands over the seeded faults: what there is, and what finding them takes."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from racegate.check.repro.search import BUDGET
from racegate.cli.options import (
    BudgetOption,
    JsonOption,
    MarkdownOption,
    ScriptsOption,
    SeedOption,
    WorkersOption,
    fail,
    folder_of_scripts,
    measured,
    named,
    place_to_write,
    stdout_console,
    tell,
    write_text,
)
from racegate.faults.catalogue import FAULTS, VARIANTS
from racegate.faults.fault import Fault, FaultKind
from racegate.history.outcome import SCHEMA
from racegate.jobs.environment import environment
from racegate.measure.evaluation.effort import measure
from racegate.measure.evaluation.matrix import is_good, load_matrix, worse_cells
from racegate.measure.evaluation.matrix import measure as measure_matrix
from racegate.measure.evaluation.mutate import Fate, try_all
from racegate.measure.evaluation.source.results import SourceSpec, score_of
from racegate.measure.evaluation.truth_table import measure_table
from racegate.report.fault_page import fault_page
from racegate.report.measured.effort import print_efforts, render_efforts
from racegate.report.measured.faults import (
    print_faults,
    print_mutants,
    print_source_mutants,
    render_mutants,
    render_source_mutants,
)
from racegate.report.measured.halffixes import as_markdown
from racegate.report.measured.matrix import print_matrix, print_worse, render_html, render_markdown
from racegate.report.measured.objects import (
    EffortObject,
    HalffixesObject,
    MutationObject,
    SourceMutationObject,
)
from racegate.report.objects import FaultEntry
from racegate.scenario.files import load_all, scenario_paths
from racegate.scenario.spec import OwnScenario
from racegate.scenario.untrusted.console import lines

app = typer.Typer(add_completion=False, no_args_is_help=True, help="The seeded faults.")


def _scenarios(given: Path | None) -> dict[str, OwnScenario]:
    paths = scenario_paths(folder_of_scripts(given))
    return {scenario.name: scenario for _, scenario in load_all(paths)}


@app.command("list")
def faults_list(
    markdown: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write the catalogue as a page here.", callback=place_to_write
        ),
    ] = None,
    json: JsonOption = None,
) -> None:
    """Every seeded fault: kind, origin, what is expected to differ first, and where."""
    faults = FAULTS + VARIANTS
    if markdown is not None:
        write_text(markdown, fault_page())
    found = [fault_object(fault) for fault in faults]
    tell(json, found, lambda: print_faults(stdout_console(), faults))


def fault_object(fault: Fault) -> FaultEntry:
    """What a list shows of a fault."""
    return FaultEntry(**{name: getattr(fault, name) for name in FaultEntry.__struct_fields__})


@app.command("effort")
def faults_effort(
    seeds: Annotated[int, typer.Option(min=1, help="Independent starts per fault.")] = 50,
    scenarios: ScriptsOption = None,
    markdown: MarkdownOption = None,
    json: JsonOption = None,
) -> None:
    """Measure what finding and minimising each fault takes (minutes)."""
    loaded = _scenarios(scenarios)
    total = sum(fault.kind is not FaultKind.CONTROL for fault in FAULTS)
    with named("faults", total=total) as on_fault:
        efforts = measure(loaded, seeds=seeds, on_fault=on_fault)
    found = EffortObject(schema=SCHEMA, environment=environment(), results=tuple(efforts))
    tell(json, found, lambda: print_efforts(stdout_console(), efforts))
    if markdown is not None:
        write_text(markdown, render_efforts(efforts, environment()))


@app.command("halffixes")
def faults_halffixes(json: JsonOption = None) -> None:
    """Run every historical design of the accepted-count path under every landing of its copy."""
    total = sum(variant.name.startswith("counts/") for variant in VARIANTS)
    with named("designs", total=total) as on_design:
        cells = measure_table(on_design=on_design)
    text = lines(as_markdown(cells).splitlines())
    found = HalffixesObject(schema=SCHEMA, cells=tuple(cells))
    tell(json, found, lambda: stdout_console().print(text, soft_wrap=True))


@app.command("mutate")
def faults_mutate(
    source: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Mutate the source of a room in place of the edges."),
    ] = None,
    sample: Annotated[
        int | None, typer.Option(min=1, help="Only so many mutants that matter, by seed.")
    ] = None,
    per_feature: Annotated[
        int | None, typer.Option(min=1, help="So many that matter of each feature of the engine.")
    ] = None,
    seed: SeedOption = 0,
    keep: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Go on from this file, and add to it."),
    ] = None,
    equivalent: Annotated[
        Path,
        typer.Option(metavar="FILE", help="Mutants of the source that change nothing, with why."),
    ] = Path("reports/faults/equivalent.toml"),
    scenarios: ScriptsOption = None,
    workers: WorkersOption = 1,
    markdown: MarkdownOption = None,
    json: JsonOption = None,
) -> None:
    """Move or drop every edge in every way, or edit the source, and say what finds each mutant: 1
    if one survives.
    """
    if source is not None:
        if per_feature is not None and (source != "engine" or sample is not None):
            fail("--per-feature is for --source engine, and in the place of --sample")
        asked = SourceSpec(
            source=source,
            sample=sample,
            per_feature=per_feature,
            seed=seed,
            keep=keep,
            equivalent=equivalent,
        )
        _mutate_source(asked, workers=workers, markdown=markdown, json=json)
    loaded = _scenarios(scenarios)
    with measured("mutants") as on_mutant:
        report = try_all(loaded, workers=workers, on_mutant=on_mutant)
    found = MutationObject(
        schema=SCHEMA,
        environment=environment(),
        mutants=report.mutants,
        redundant=report.redundant,
    )
    tell(json, found, lambda: print_mutants(stdout_console(), report))
    if markdown is not None:
        write_text(markdown, render_mutants(report, environment()))
    fates = {mutant.fate for mutant in report.mutants}
    raise typer.Exit(1 if fates & {Fate.SURVIVED, Fate.IDLE} else 0)


def _mutate_source(
    asked: SourceSpec, *, workers: int, markdown: Path | None, json: str | None
) -> NoReturn:
    for library in ("libcst", "coverage", "pytest"):
        if find_spec(library) is None:
            fail(f"mutating the source needs {library}: pip install 'racegate[test]'")
    # Only here is libcst needed.
    from racegate.measure.evaluation.source.job import mutate_source

    with measured("mutants") as on_done:
        report = mutate_source(asked, workers=workers, on_done=on_done)
    found = SourceMutationObject(schema=SCHEMA, environment=environment(), report=report)
    tell(json, found, lambda: print_source_mutants(stdout_console(), report))
    if markdown is not None:
        write_text(markdown, render_source_mutants(found))
    raise typer.Exit(score_of(report.results).exit_code)


@app.command("matrix")
def faults_matrix(
    scenarios: ScriptsOption = None,
    workers: WorkersOption = 1,
    budget: BudgetOption = BUDGET,
    seed: SeedOption = 0,
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write the table as a page here.", callback=place_to_write
        ),
    ] = None,
    markdown: MarkdownOption = None,
    against: Annotated[
        Path | None, typer.Option(metavar="FILE", help="An earlier matrix: say what got worse.")
    ] = None,
    json: JsonOption = None,
) -> None:
    """Every fault against every oracle and strategy: 1 if one does not show as it should."""
    before = None if against is None else load_matrix(against)
    loaded = _scenarios(scenarios)
    with named("faults", total=len(FAULTS)) as on_row:
        matrix = measure_matrix(loaded, workers=workers, budget=budget, seed=seed, on_row=on_row)
    worse = [] if before is None else worse_cells(before, matrix)

    def show() -> None:
        print_matrix(stdout_console(), matrix)
        if before is not None:
            print_worse(stdout_console(), worse)

    tell(json, matrix, show)
    if html is not None:
        write_text(html, render_html(matrix))
    if markdown is not None:
        write_text(markdown, render_markdown(matrix))
    raise typer.Exit(0 if is_good(matrix.totals) and not worse else 1)
