"""The command bench."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer
from rich.table import Table

from racegate.bench.cuda import BenchPart, cuda_jobs, has_failed, run_job
from racegate.bench.virtual import BenchEntry, BenchResult, run_bench
from racegate.cli.options import (
    DeviceKind,
    DeviceOption,
    JsonOption,
    fail,
    progress_bar,
    stdout_console,
    write_json,
)
from racegate.device.cuda.torch import open_cuda
from racegate.history.outcome import SCHEMA
from racegate.jobs.environment import environment_of

app = typer.Typer(add_completion=False)


@app.command()
def bench(
    seconds: Annotated[float, typer.Option(help="Time for each measurement.")] = 3.0,
    device: DeviceOption = DeviceKind.VIRTUAL,
    part: Annotated[BenchPart, typer.Option(help="On CUDA: what to measure.")] = BenchPart.ALL,
    json: JsonOption = None,
) -> None:
    """Measure schedules per second on one core, split into engine, recording and oracles; on CUDA
    the kernels beside the copy bandwidth of the card, the engine at depth 1 and 2, and what
    recording and holding cost there.
    """
    if device is DeviceKind.CUDA:
        result = _bench_cuda(part, seconds)
    elif part is not BenchPart.ALL:
        fail("--part says what to measure on a GPU: add --device cuda")
    else:
        result = run_bench(seconds=seconds)
    if json is not None:
        write_json(json, {"schema": SCHEMA, **msgspec.to_builtins(result)})
    if json != "-":
        table = Table("name", "value", "unit", "detail")
        for entry in result.results:
            table.add_row(entry.name, f"{entry.value:.3g}", entry.unit, entry.detail)
        stdout_console().print(table)
    raise typer.Exit(3 if has_failed(result.results) else 0)


def _bench_cuda(part: BenchPart, seconds: float) -> BenchResult:
    """Job by job; every figure is on standard error as soon as it is known."""
    jobs = cuda_jobs(open_cuda(), part=part, seconds=seconds)
    entries: list[BenchEntry] = []
    progress = progress_bar()
    # A thread that draws would take its time from the steps that are measured.
    progress.live.auto_refresh = False
    with progress:
        task = progress.add_task("bench", total=len(jobs))
        for job in jobs:
            progress.update(task, description=job.name, refresh=True)
            for entry in run_job(job):
                entries.append(entry)
                figure = f"{entry.name} {entry.value:.6g} {entry.unit}  ({entry.detail})"
                progress.console.print(figure, highlight=False, soft_wrap=True)
            progress.advance(task)
    return BenchResult(environment=environment_of("cuda"), results=tuple(entries))
