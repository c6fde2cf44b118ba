"""The command bench."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer
from rich.table import Table

from racegate.cli.options import (
    DeviceOption,
    ExecutionDevice,
    JsonOption,
    MarkdownOption,
    fail,
    progress_bar,
    stdout_console,
    tell,
    write_text,
)
from racegate.device.cuda.torch import open_cuda
from racegate.history.outcome import SCHEMA
from racegate.jobs.environment import environment_of
from racegate.measure.bench.cuda import (
    BenchJob,
    BenchPart,
    cuda_jobs,
    has_failed,
    peer_jobs,
    run_job,
)
from racegate.measure.bench.peers import find_peers
from racegate.measure.bench.profile import run_profile
from racegate.measure.bench.virtual import BenchEntry, BenchResult, run_bench
from racegate.report.measured.profile import render_profile

app = typer.Typer(add_completion=False)


@app.command()
def bench(
    seconds: Annotated[float, typer.Option(help="Time for each measurement.")] = 3.0,
    device: DeviceOption = ExecutionDevice.VIRTUAL,
    part: Annotated[BenchPart, typer.Option(help="On CUDA: what to measure.")] = BenchPart.ALL,
    peers: Annotated[
        bool | None,
        typer.Option("--peers", help="On CUDA: state updates beside released kernels of others."),
    ] = None,
    profile: Annotated[
        bool | None,
        typer.Option("--profile", help="Where the time of a run goes, by layer and by kernel."),
    ] = None,
    markdown: MarkdownOption = None,
    json: JsonOption = None,
) -> None:
    """Measure schedules per second on one core, split into engine, recording and oracles; on CUDA
    the kernels beside the copy bandwidth of the card, the engine at depth 1 and 2, and what
    recording and holding cost there.
    """
    if profile and device is ExecutionDevice.CUDA:
        fail("--profile takes the virtual device apart: leave out --device cuda")
    if markdown is not None and not profile:
        fail("--markdown is the page of a profile: add --profile")
    if device is not ExecutionDevice.CUDA and peers:
        fail("--peers compares kernels on a GPU: add --device cuda")
    if peers and part is not BenchPart.ALL:
        fail("--peers is a measurement of its own: leave out --part")
    if device is ExecutionDevice.CUDA:
        result = _bench_cuda(_peer_jobs() if peers else _own_jobs(part, seconds))
    elif part is not BenchPart.ALL:
        fail("--part says what to measure on a GPU: add --device cuda")
    else:
        result = run_profile(seconds=seconds) if profile else run_bench(seconds=seconds)
    if markdown is not None:
        command = f"racegate bench --profile --seconds {seconds:g} --markdown {markdown}"
        write_text(markdown, render_profile(result, command=command))
    table = Table("name", "value", "unit", "detail")
    for entry in result.results:
        table.add_row(entry.name, f"{entry.value:.3g}", entry.unit, entry.detail)
    found = {"schema": SCHEMA, **msgspec.to_builtins(result)}
    tell(json, found, lambda: stdout_console().print(table))
    raise typer.Exit(3 if has_failed(result.results) else 0)


def _own_jobs(part: BenchPart, seconds: float) -> list[BenchJob]:
    return cuda_jobs(open_cuda(), part=part, seconds=seconds)


def _peer_jobs() -> list[BenchJob]:
    """Ends the command where no peer is installed."""
    cuda, (contenders, missing) = open_cuda(), find_peers()
    if not contenders:
        reasons = "\n".join(f"  {peer.name}: {peer.reason}" for peer in missing)
        fail(f"no kernels of others to compare with\n{reasons}")
    return peer_jobs(cuda, contenders, missing)


def _bench_cuda(jobs: list[BenchJob]) -> BenchResult:
    """Job by job; every figure is on standard error as soon as it is known."""
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
