"""The command replay, of witnesses of every kind."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from racegate.cli.options import (
    DeviceOption,
    ExecutionDevice,
    JsonOption,
    LogOption,
    PacingOption,
    PathOption,
    RunTimeoutOption,
    fail,
    named,
    site_of,
    stdout_console,
    tell,
    write_text,
)
from racegate.cli.pictures import (
    HtmlOption,
    PictureFiles,
    SvgOption,
    TraceOutOption,
    draw,
    shown_of,
)
from racegate.device.cuda.pacing import Pacing
from racegate.faults.catalogue import find_fault
from racegate.history.exit_code import ExitCode
from racegate.history.replayed import (
    EXIT_CODES,
    Replay,
    Replays,
    ReplaySummary,
    without_last_run,
    worst_of,
)
from racegate.history.witness import load_witness, read_object, subject_of
from racegate.interpose.outcome import DeviceKind as ProgramDevice
from racegate.jobs.environment import environment_of
from racegate.jobs.triage.replays import ReplaySettings, replay_files
from racegate.report.finding.drawing import Examined, page_of_all, seen_in
from racegate.report.search import print_replays
from racegate.report.targets.replays import print_one_replay

app = typer.Typer(add_completion=False)

ReleaseOption = Annotated[
    str | None,
    typer.Option("--release", metavar="X", help="Of a release: another than it was found in."),
]


@app.command()
def replay(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Witnesses.")],
    times: Annotated[int, typer.Option(min=1, help="How often each.")] = 1,
    device: DeviceOption = ExecutionDevice.VIRTUAL,
    pacing: PacingOption = Pacing.EAGER,
    timeout: RunTimeoutOption = 0.0,
    release: ReleaseOption = None,
    path: PathOption = None,
    log: LogOption = None,
    pdb: Annotated[
        bool | None,
        typer.Option(
            "--pdb", help="Stop where a held operation lands, in the engine or the program."
        ),
    ] = None,
    svg: SvgOption = None,
    html: HtmlOption = None,
    trace_out: TraceOutOption = None,
    json: JsonOption = None,
) -> None:
    """Run witnesses again, of the engine, of programs, of vLLM or SGLang releases, or of adapters:
    1 reproduced, 4 not realised, 5 another signature, 6 nothing found; of several the worst
    outcome.
    """
    subjects = [subject_of(read_object(file), source=str(file)) for file in files]
    wanted = PictureFiles(svg, html, trace_out)
    if set(subjects) != {"engine"}:
        wanted.refuse_all("pictures are of witnesses of the engine")
    if len(files) > 1:
        wanted._replace(html=None).refuse_all("--html alone has several findings")
    settings = ReplaySettings(
        times=times,
        device=ProgramDevice(device.value),
        pacing=pacing,
        timeout_s=timeout,
        release=release,
        checkout=path,
        log=log,
        site=site_of(device, pacing) if "engine" in subjects else None,
        is_debugged=bool(pdb),
    )
    if pdb:
        _check_debugged(files, times, device, json)
        results = replay_files(files, settings)
    else:
        with named("replaying", total=len(files)) as on_done:
            results = replay_files(files, settings, on_done=on_done)
    seen = _seen(files[0], results[0], settings) if len(files) == 1 else None
    tell(json, _replay_object(results, device), lambda: _show(files, results, seen))
    if len(files) == 1:
        if subjects == ["engine"]:
            draw(wanted, seen)
    elif html is not None:
        looked = [
            (file.name, str(result.outcome), _seen(file, result, settings))
            for file, result in zip(files, results, strict=True)
        ]
        write_text(html, page_of_all(looked))
    raise typer.Exit(exit_code_of(results))


def _check_debugged(
    files: Sequence[Path], times: int, device: ExecutionDevice, json: str | None
) -> None:
    if len(files) > 1 or times > 1:
        fail("--pdb is for one witness, replayed once")
    if device is not ExecutionDevice.VIRTUAL:
        fail("--pdb stops on the virtual device alone: a GPU tells nobody that a copy has landed")
    if json == "-":
        fail("--pdb has standard output: give --json a file")


def exit_code_of(results: Sequence[ReplaySummary]) -> ExitCode:
    """3 if the harness broke in one of them, else that of the worst outcome."""
    if any(isinstance(result, Replay) and result.last.breakages for result in results):
        return ExitCode.BROKEN_HARNESS
    return EXIT_CODES[worst_of(result.outcome for result in results)]


def _seen(file: Path, result: ReplaySummary, settings: ReplaySettings) -> Examined | None:
    """The run of a witness of our own engine, to be looked at."""
    if not isinstance(result, Replay) or result.subject != "engine":
        return None
    fault = None if result.fault is None else find_fault(result.fault)
    checker = settings.checkers.of(load_witness(file).scenario, cuda=settings.site)
    return seen_in(checker, result.last, fault)


def _show(files: Sequence[Path], results: Sequence[ReplaySummary], seen: Examined | None) -> None:
    if len(files) == 1:
        print_one_replay(stdout_console(), results[0], shown_of(seen))
    else:
        print_replays(stdout_console(), files, results)


def _replay_object(
    results: Sequence[ReplaySummary], device: ExecutionDevice
) -> ReplaySummary | Replays:
    """One replay whole; several without their last runs."""
    if len(results) == 1:
        return results[0]
    return Replays(
        environment=environment_of(device), replays=tuple(map(without_last_run, results))
    )
