"""The command repair: edges that order the conflicts of a program, written, run and proved."""

from __future__ import annotations

import shlex
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from racegate.cli.foreign.torch import MemoryOption, SearchProgress
from racegate.cli.options import JsonOption, RunTimeoutOption, tell
from racegate.history.schedule import Holds, parse_holds
from racegate.interpose.outcome import DeviceKind
from racegate.report.targets.repairs import render_repair
from racegate.scenario.untrusted.text import printable_lines
from racegate.targets.common.server import PrintPlace
from racegate.targets.program.launch import Program, checked_program, open_device
from racegate.targets.program.repairs.edges import WaitKind
from racegate.targets.program.repairs.proof import repair_program
from racegate.targets.program.workflow.witness import PROGRAM_WITNESSES

app = typer.Typer(add_completion=False)


class WaitLimit(StrEnum):
    """Who may be made to wait, at the most. DEVICE: the host, for the whole device"""

    STREAM = "stream"
    HOST = "host"
    DEVICE = "device"


@app.command(context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True})
def repair(
    program: Annotated[
        list[str],
        typer.Argument(metavar="SCRIPT [ARGS]", help="Or -m MODULE [ARGS], or a witness of one."),
    ],
    wait: Annotated[
        WaitLimit,
        typer.Option(help="Who may be made to wait: device is the host, for the whole device."),
    ] = WaitLimit.HOST,
    runs: Annotated[int, typer.Option(min=3, help="Runs that may be made.")] = 200,
    memory: MemoryOption = 0,
    timeout: RunTimeoutOption = 0.0,
    json: JsonOption = None,
) -> None:
    """Find the edges that order the conflicts of a program, prove that they do and that each is
    needed, and print them as a diff: 0 all repaired, 1 a conflict that no edge repairs, 4 runs
    were spent.
    """
    subject, wanted, holds = _read(program, memory=memory, timeout_s=timeout)
    stdout = PrintPlace.STDERR
    with open_device(stdout=stdout) as device, SearchProgress() as progress:
        found = repair_program(
            device,
            subject,
            wanted=wanted,
            holds=holds,
            waiter_max=WaitKind[wait.name],
            runs_max=runs,
            on_trial=progress.show,
        )
    text = printable_lines(render_repair(found, shlex.join(subject.argv)))
    tell(json, found, lambda: _show(found.diff, text))
    raise typer.Exit(found.exit_code)


def _show(diff: str, text: str) -> None:
    print(diff, end="")
    print(text, file=sys.stderr)


def _read(argv: list[str], *, memory: int, timeout_s: float) -> tuple[Program, str, Holds]:
    """What is to be repaired: a program, or the finding of a witness, with its holds."""
    if len(argv) > 1 or not argv[0].endswith(".json"):
        program = checked_program(tuple(argv), timeout_s=timeout_s, memory_bytes=memory)
        return program, "", ()
    witness = PROGRAM_WITNESSES.load(Path(argv[0]))
    program = witness.subject.checked(DeviceKind.VIRTUAL, timeout_s=timeout_s)
    return program, witness.signature, parse_holds(witness.holds)
