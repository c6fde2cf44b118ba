"""The command replay."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from racegate.check.checker import Checkers
from racegate.cli.options import (
    DeviceKind,
    DeviceOption,
    JsonOption,
    PacingOption,
    progress_bar,
    site_of,
    stdout_console,
    tell,
)
from racegate.device.cuda.pacing import Pacing
from racegate.history.exit_code import ExitCode
from racegate.history.outcome import SCHEMA
from racegate.history.witness import load_witness
from racegate.jobs.environment import environment_of
from racegate.report.search import print_replay, print_replays
from racegate.repro.replay import EXIT_CODES, Replay, ReplayOfFile, ReplaysObject, worst_of
from racegate.repro.replay import replay as replay_witness

app = typer.Typer(add_completion=False)


@app.command()
def replay(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Witnesses.")],
    times: Annotated[int, typer.Option(min=1, help="How often each.")] = 1,
    device: DeviceOption = DeviceKind.VIRTUAL,
    pacing: PacingOption = Pacing.EAGER,
    json: JsonOption = None,
) -> None:
    """Run witnesses again: 1 reproduced, 4 not realised, 5 another signature, 6 nothing found; of
    several the worst outcome.
    """
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
    tell(json, _replay_object(files, results, device), lambda: _show(files, results))
    raise typer.Exit(exit_code_of(results))


def exit_code_of(results: Sequence[Replay]) -> ExitCode:
    """3 if the harness broke in one of them, else that of the worst outcome."""
    if any(result.last.breakages for result in results):
        return ExitCode.BROKEN_HARNESS
    return EXIT_CODES[worst_of(result.outcome for result in results)]


def _show(files: list[Path], results: list[Replay]) -> None:
    if len(files) == 1:
        print_replay(stdout_console(), results[0])
    else:
        print_replays(stdout_console(), files, results)


def _replay_object(
    files: list[Path], results: list[Replay], device: DeviceKind
) -> Replay | ReplaysObject:
    """One replay whole; several without their last runs."""
    if len(files) == 1:
        return results[0]
    pairs = zip(files, results, strict=True)
    replays = tuple(ReplayOfFile.of(file.name, result) for file, result in pairs)
    return ReplaysObject(schema=SCHEMA, environment=environment_of(device), replays=replays)
