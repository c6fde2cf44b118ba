"""The command soak."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Column, Table

from racegate.cli.options import (
    JsonOption,
    PacingOption,
    ScriptsOption,
    SeedOption,
    WorkersOption,
    folder_of_scripts,
    progress_bar,
    stdout_console,
    tell,
)
from racegate.device.cuda.pacing import Pacing
from racegate.device.cuda.torch import open_cuda
from racegate.jobs.soak import SoakResult, SoakSpec
from racegate.jobs.soak import soak as run_soak
from racegate.jobs.stopping import StoppedError, known_result
from racegate.scenario.files import scenario_paths
from racegate.scenario.untrusted.console import line

app = typer.Typer(add_completion=False)


@app.command()
def soak(
    runs: Annotated[int, typer.Option(min=1, help="How many runs, of all scenarios.")] = 1_000,
    seconds: Annotated[
        float | None, typer.Option(min=0.0, help="Begin no run after so many seconds.")
    ] = None,
    workers: WorkersOption = 1,
    seed: SeedOption = 1,
    pacing: PacingOption = Pacing.EAGER,
    scenarios: ScriptsOption = None,
    json: JsonOption = None,
) -> None:
    """Run correct scenarios on a GPU with held operations, and compare with the virtual device: 0
    all right, 1 a wrong run, 3 a run that hung, failed, had to be ended or left another trace, 4 a
    scenario of which nothing was held.
    """
    paths = scenario_paths(folder_of_scripts(scenarios))
    open_cuda()
    plan = SoakSpec(runs=runs, seconds=seconds, workers=workers, seed=seed, pacing=pacing)
    stop: StoppedError | None = None
    with progress_bar() as progress:
        task = progress.add_task("soak", total=runs)
        try:
            result = run_soak(paths, plan, lambda done: progress.update(task, completed=done))
        except StoppedError as error:
            stop, result = error, known_result(error, SoakResult)
    tell(json, result, lambda: _print(result))
    if stop is not None:
        raise stop
    raise typer.Exit(exit_code_of(result))


def exit_code_of(result: SoakResult) -> int:
    """The harness before the engine: what hangs proves nothing."""
    if result.hung or result.failed or result.total.expired or result.total.differing:
        return 3
    if result.total.wrong:
        return 1
    return 4 if result.unheld else 0


def _print(result: SoakResult) -> None:
    names = ("runs", "held", "unrealised", "expired", "wrong", "differing")
    table = Table("scenario", *(Column(name, justify="right") for name in names))
    for tally in (*result.scenarios, result.total):
        table.add_row(tally.scenario, *(str(getattr(tally, name)) for name in names))
    console = stdout_console()
    console.print(table)
    for example in result.total.examples:
        console.print(example)
    for name in result.hung:
        console.print(line(("hung", "bold red"), f" {name}"))
    for reason in result.failed:
        console.print(line(("failed", "bold red"), f" {reason}"))
    for name in result.unheld:
        advice = f" {name}: ask for more runs, or more seconds"
        console.print(line(("nothing held", "bold yellow"), advice))
    console.print(f"{result.seconds:.0f} s, {result.runs_per_second:.1f} runs/s")
