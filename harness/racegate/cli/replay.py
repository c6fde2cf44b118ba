"""The command replay."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from racegate.check.checker import Checkers
from racegate.check.repro.replay import Replay, ReplayOfFile, ReplaysObject
from racegate.check.repro.replay import replay as replay_witness
from racegate.cli.options import (
    DeviceOption,
    ExecutionDevice,
    JsonOption,
    PacingOption,
    RunTimeoutOption,
    progress_bar,
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
from racegate.history.outcome import SCHEMA
from racegate.history.replayed import EXIT_CODES, worst_of
from racegate.history.witness import Witness, load_witness
from racegate.interpose.outcome import DeviceKind as ProgramDevice
from racegate.jobs.environment import environment_of
from racegate.report.search import print_replay, print_replays
from racegate.report.targets.releases import print_engine_verdict
from racegate.report.timeline.drawing import Examined, page_of_all, seen_in
from racegate.scenario.untrusted.text import printable_lines
from racegate.targets.program.launch import open_device
from racegate.targets.program.workflow.replay import ProgramReplays, render_replay, replay_program
from racegate.targets.program.workflow.witness import is_program_witness, load_program_witness
from racegate.targets.vllm.replay import judge_again
from racegate.targets.vllm.witness import is_engine_witness, outcome_of, read_witness

if TYPE_CHECKING:
    from racegate.device.cuda.site import CudaSite

app = typer.Typer(add_completion=False)


@app.command()
def replay(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Witnesses.")],
    times: Annotated[int, typer.Option(min=1, help="How often each.")] = 1,
    device: DeviceOption = ExecutionDevice.VIRTUAL,
    pacing: PacingOption = Pacing.EAGER,
    timeout: RunTimeoutOption = 0.0,
    svg: SvgOption = None,
    html: HtmlOption = None,
    trace_out: TraceOutOption = None,
    json: JsonOption = None,
) -> None:
    """Run witnesses again, of the engine, of programs or of vLLM releases: 1 reproduced, 4 not
    realised, 5 another signature, 6 nothing found; of several the worst outcome.
    """
    wanted = PictureFiles(svg, html, trace_out)
    if any(is_engine_witness(f) or is_program_witness(f) for f in files):
        wanted.refuse_all("pictures are of witnesses of the engine")
    if len(files) > 1:
        wanted._replace(html=None).refuse_all("--html alone has several findings")
    if any(map(is_engine_witness, files)):
        raise typer.Exit(_replay_releases(files, json))
    if any(map(is_program_witness, files)):
        raise typer.Exit(_replay_programs(files, times, timeout, json, device=device))
    witnesses = [load_witness(file) for file in files]
    site = site_of(device, pacing)
    options = "" if site is None else f" --device {device} --pacing {pacing}"
    results = []
    checkers = Checkers()
    with progress_bar() as progress:
        task = progress.add_task("replaying", total=len(files))
        for file, witness in zip(files, witnesses, strict=True):
            progress.update(task, description=file.name)
            command = f"racegate replay {file}{options}"
            results.append(
                replay_witness(witness, times=times, command=command, cuda=site, checkers=checkers)
            )
            progress.advance(task)
    seen = None if len(files) > 1 else _seen(witnesses[0], results[0], site, checkers)
    tell(json, _replay_object(files, results, device), lambda: _show(files, results, seen))
    if len(files) == 1:
        draw(wanted, seen)
    elif html is not None:
        looked = [
            (file.name, str(result.outcome), _seen(witness, result, site, checkers))
            for file, witness, result in zip(files, witnesses, results, strict=True)
        ]
        write_text(html, page_of_all(looked))
    raise typer.Exit(exit_code_of(results))


def _replay_programs(
    files: list[Path], times: int, timeout_s: float, json: str | None, *, device: ExecutionDevice
) -> int:
    """Programs' witnesses, on one virtual CUDA device or on a real GPU."""
    witnesses = [load_program_witness(file) for file in files]
    replays = []
    with open_device(ProgramDevice(device.value)) as opened, progress_bar() as progress:
        task = progress.add_task("replaying", total=len(files))
        for witness in witnesses:
            replays.append(replay_program(opened, witness, times=times, timeout_s=timeout_s))
            progress.advance(task)
    result = replays[0] if len(replays) == 1 else ProgramReplays(replays=tuple(replays))
    texts = [printable_lines(render_replay(one)) for one in replays]
    tell(json, result, lambda: print("\n".join(texts)))
    return EXIT_CODES[worst_of(one.outcome for one in replays)]


def _replay_releases(files: list[Path], json: str | None) -> int:
    """Witnesses of vLLM releases, each in an engine of its own, as `racegate vllm replay` does."""
    witnesses = [read_witness(file) for file in files]
    judged = [judge_again(witness) for witness in witnesses]

    def show() -> None:
        for file, found in zip(files, judged, strict=True):
            print_engine_verdict(stdout_console(), found, str(file))

    tell(json, judged[0] if len(judged) == 1 else judged, show)
    outcomes = [outcome_of(one, found) for one, found in zip(judged, witnesses, strict=True)]
    return EXIT_CODES[worst_of(outcomes)]


def exit_code_of(results: Sequence[Replay]) -> ExitCode:
    """3 if the harness broke in one of them, else that of the worst outcome."""
    if any(result.last.breakages for result in results):
        return ExitCode.BROKEN_HARNESS
    return EXIT_CODES[worst_of(result.outcome for result in results)]


def _seen(
    witness: Witness, result: Replay, site: CudaSite | None, checkers: Checkers
) -> Examined | None:
    """The run of a witness, to be looked at."""
    fault = None if witness.fault is None else find_fault(witness.fault)
    return seen_in(checkers.of(witness.scenario, cuda=site), result.last, fault)


def _show(files: list[Path], results: list[Replay], seen: Examined | None) -> None:
    if len(files) == 1:
        print_replay(stdout_console(), results[0], shown_of(seen))
    else:
        print_replays(stdout_console(), files, results)


def _replay_object(
    files: list[Path], results: list[Replay], device: ExecutionDevice
) -> Replay | ReplaysObject:
    """One replay whole; several without their last runs."""
    if len(files) == 1:
        return results[0]
    pairs = zip(files, results, strict=True)
    replays = tuple(ReplayOfFile.of(file.name, result) for file, result in pairs)
    return ReplaysObject(schema=SCHEMA, environment=environment_of(device), replays=replays)
