"""The command ab."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import msgspec
import typer
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from racegate.cli.options import (
    ExecutionDevice,
    JsonOption,
    WorkersOption,
    fail,
    folder_of_scripts,
    say,
    stderr_console,
    stdout_console,
    tell,
)
from racegate.device.cuda.site import CudaSite
from racegate.device.cuda.torch import open_cuda
from racegate.history.replayed import ReplayOutcome
from racegate.history.witness import load_witness
from racegate.jobs.environment import environment_of
from racegate.measure.ab.folder import Folder, open_folder, read_folder
from racegate.measure.ab.held import run_held, witness_path
from racegate.measure.ab.running import AbRunner, WaveProgress, WaveShare, parse_share, worker_here
from racegate.measure.ab.summary import AbReport, summarise
from racegate.measure.ab.waves import TruthError, VirtualWaveSite, cuda_wave_site
from racegate.measure.ab.workload import (
    ARMS,
    CHECKED,
    GENERATIONS,
    MAX_TOKENS,
    ROWS,
    VOCAB_SIZE,
    WAVE,
    AbSpec,
    Arm,
    ModelSize,
)
from racegate.report.measured.ab import print_ab
from racegate.scenario.settings import CacheMode


class Only(StrEnum):
    """What to do instead of running anything."""

    REPORT = "report"


class CallSpec(msgspec.Struct, frozen=True, kw_only=True):
    """How what is missing is run. witnesses: where the held runs of the faults are"""

    share: WaveShare
    workers: int = 1
    seconds: float | None = None
    witnesses: Path


app = typer.Typer(add_completion=False)


@app.command()
def ab(
    generations: Annotated[int, typer.Option(min=1, help="Of each arm.")] = GENERATIONS,
    rows: Annotated[int, typer.Option(min=1, max=256, help="Decoded side by side.")] = ROWS,
    wave: Annotated[
        int, typer.Option(min=1, max=4096, help="Generations of one run of the engine.")
    ] = WAVE,
    max_tokens: Annotated[int, typer.Option(min=1, max=4096)] = MAX_TOKENS,
    vocab: Annotated[
        int, typer.Option(min=8, max=4096, help="The mean length, but for --max-tokens.")
    ] = VOCAB_SIZE,
    size: Annotated[ModelSize, typer.Option(help="Of the model.")] = ModelSize.TINY,
    cache: Annotated[CacheMode, typer.Option(help="Of every arm but the truth.")] = CacheMode.ALIGN,
    checked: Annotated[
        int, typer.Option(min=1, help="Generations of the truth compared with the CPU reference.")
    ] = CHECKED,
    seed: Annotated[int, typer.Option(min=0, max=1 << 30)] = 0,
    arm: Annotated[
        list[Arm] | None, typer.Option(help="Only this one; may be given several times.")
    ] = None,
    device: Annotated[ExecutionDevice, typer.Option(help="Where to run.")] = ExecutionDevice.CUDA,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Finished waves are kept here, and not run again."),
    ] = None,
    part: Annotated[
        str,
        typer.Option(metavar="I/N", help="Every N-th wave only; machines may run a part each."),
    ] = "1/1",
    workers: WorkersOption = 1,
    seconds: Annotated[
        float | None, typer.Option(min=0.0, help="Begin no wave that would end later.")
    ] = None,
    only: Annotated[
        Only | None, typer.Option(help="Run nothing: report what --out DIR holds.")
    ] = None,
    witnesses: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The held runs of the faults.")
    ] = None,
    json: JsonOption = None,
) -> None:
    """Compare thousands of generations under natural timing, with and without a fault."""
    if only is Only.REPORT:
        if out is None:
            fail("--only report needs --out DIR")
        folder = read_folder(out)
        _end(summarise(folder, _others(arm or folder.arms())), json)
    plan = AbSpec(
        device=device.value,
        generations=generations,
        wave=wave,
        rows=rows,
        max_tokens=max_tokens,
        vocab_size=vocab,
        size=size,
        cache_mode=cache,
        checked=checked,
        seed=seed,
    )
    arms = _others(arm or ARMS)
    with _folder(out, plan) as folder:
        how = CallSpec(
            share=parse_share(part),
            workers=workers,
            seconds=seconds,
            witnesses=folder_of_scripts(witnesses, "witnesses"),
        )
        _run(folder, arms, how)
        _end(summarise(folder, arms), json)


def _others(arms: Sequence[Arm]) -> tuple[Arm, ...]:
    """Each once, without the truth, which is always there."""
    return tuple(arm for arm in dict.fromkeys(arms) if arm is not Arm.TRUTH)


@contextmanager
def _folder(out: Path | None, plan: AbSpec) -> Iterator[Folder]:
    """The folder asked for, or one that goes with the command."""
    if out is not None:
        yield open_folder(out, plan)
        return
    with TemporaryDirectory(prefix="racegate-ab-") as path:
        yield open_folder(Path(path), plan)


def _run(folder: Folder, arms: Sequence[Arm], how: CallSpec) -> None:
    """What is missing; the held runs first, which take moments, and by the first share only."""
    faults = dict.fromkeys(one.fault.name for one in arms if one.fault is not None)
    known = {run.fault for run in folder.held()}
    lacking = [name for name in faults if name not in known and how.share.index == 1]
    for name in lacking:
        load_witness(witness_path(name, how.witnesses))
    driver = None if folder.plan.device == ExecutionDevice.VIRTUAL else open_cuda()
    started = time.perf_counter()
    for name in lacking:
        held_site = None if driver is None else CudaSite(driver)
        folder.save_held(run_held(name, how.witnesses, cuda=held_site))
    seconds = how.seconds
    if seconds is not None:
        seconds -= time.perf_counter() - started
    make = None
    if how.workers == 1:
        site = VirtualWaveSite() if driver is None else cuda_wave_site(driver)
        make = worker_here(folder, site, environment_of(folder.plan.device))
    runner = AbRunner(folder, arms, make, share=how.share, workers=how.workers, seconds=seconds)
    try:
        with _progress() as on_done:
            runner.run(on_done)
    except TruthError as error:
        say(f"the truth is wrong: {error}")
        raise typer.Exit(3) from error


@contextmanager
def _progress() -> Iterator[Callable[[WaveProgress], None]]:
    """A bar on a terminal; in a log a line per wave."""
    console = stderr_console()
    if not console.is_terminal:
        yield lambda done: print(line_of(done), file=sys.stderr, flush=True)
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeRemainingColumn())
    with Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting", total=None)
        yield lambda done: bar.update(
            task, completed=done.done, total=done.units, description=line_of(done)
        )


def line_of(progress: WaveProgress) -> str:
    """One finished wave: its rate, what was wrong, and how long the rest will take."""
    wave = progress.shown
    rate = wave.tokens / wave.seconds if wave.seconds else 0.0
    stopped = "" if wave.stopped is None else f", stopped: {wave.stopped}"
    return (
        f"{progress.done}/{progress.units} {wave.arm} wave {wave.wave}: "
        f"{wave.generations} generations, {wave.wrong} wrong, {wave.seconds:.1f} s, "
        f"{rate:,.0f} tokens/s, {progress.left_s:.0f} s left{stopped}"
    )


def _end(report: AbReport, json: str | None) -> None:
    tell(json, msgspec.to_builtins(report), lambda: print_ab(stdout_console(), report))
    raise typer.Exit(exit_code_of(report))


def exit_code_of(report: AbReport) -> int:
    """1 if an engine without a fault was wrong or a held run shows nothing; 4 if waves lack."""
    is_shown = all(run.outcome is ReplayOutcome.REPRODUCED for run in report.held)
    if not report.is_right or not is_shown:
        return 1
    return 4 if report.missing else 0
