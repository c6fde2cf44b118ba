"""The command repair: edges that order the conflicts of a program, written, run and proved."""

from __future__ import annotations

import shlex
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from racegate.cli.foreign.torch import SearchProgress
from racegate.cli.foreign.virtual import MemoryOption
from racegate.cli.help.named import FaultOption, ScenarioArgument
from racegate.cli.options import (
    JsonOption,
    LogOption,
    RunTimeoutOption,
    fail,
    place_to_write,
    say,
    tell,
    write_text,
)
from racegate.faults.catalogue import find_fault
from racegate.history.exit_code import ExitCode
from racegate.history.schedule import Holds, parse_holds
from racegate.interpose.errors import BadInput
from racegate.interpose.outcome import DeviceKind
from racegate.jobs.foreign.releases import ReleaseCell, kind_of
from racegate.report.targets.repairs import render_patch, render_repair
from racegate.scenario.errors import BadInputError
from racegate.scenario.files import load, load_for, script_file
from racegate.scenario.untrusted.reading import read_text
from racegate.scenario.untrusted.text import printable_lines
from racegate.targets.common.server import PrintPlace
from racegate.targets.program.launch import Program, checked_program, open_device
from racegate.targets.program.repair import SOURCE_BYTES_MAX
from racegate.targets.program.repairs.edges import WaitKind
from racegate.targets.program.repairs.exported import ExportedKind, export_test
from racegate.targets.program.repairs.patches import judge_patch, read_patch
from racegate.targets.program.repairs.proof import repair_program
from racegate.targets.program.workflow.witness import PROGRAM_WITNESSES, save_witnesses

app = typer.Typer(add_completion=False)


class WaitLimit(StrEnum):
    """Who may be made to wait, at the most. DEVICE: the host, for the whole device"""

    STREAM = "stream"
    HOST = "host"
    DEVICE = "device"


WaitOption = Annotated[
    WaitLimit,
    typer.Option(help="Who may be made to wait: device is the host, for the whole device."),
]


@app.command(context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True})
def repair(
    program: Annotated[
        list[str],
        typer.Argument(
            metavar="SCRIPT [ARGS]",
            help="Or -m MODULE [ARGS], or a witness of one; with --fault a scenario.",
        ),
    ],
    fault: FaultOption = None,
    wait: WaitOption = WaitLimit.HOST,
    runs: Annotated[int, typer.Option(min=3, help="Runs that may be made.")] = 200,
    patch: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Judge this diff: what it repairs, leaves and adds."),
    ] = None,
    witness: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            callback=place_to_write,
            help="With --patch: write what replays each DIVERGENT conflict that is left.",
        ),
    ] = None,
    memory: MemoryOption = 0,
    timeout: RunTimeoutOption = 0.0,
    json: JsonOption = None,
) -> None:
    """Find the edges that order the conflicts of a program, prove that they do and that each is
    needed, and print them as a diff: 0 all repaired, 1 a conflict that no edge repairs, 4 runs
    were spent.
    """
    if fault is not None:
        if len(program) > 1 or patch is not None:
            fail("--fault is of racegate's own engine: name one scenario, and no --patch")
        raise typer.Exit(_repair_engine(program[0], fault, json))
    subject, wanted, holds = _read(program, memory=memory, timeout_s=timeout)
    stdout = PrintPlace.STDERR
    if patch is not None:
        raise typer.Exit(_judge(subject, patch, witness, runs_max=runs, json=json))
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


def repair_in_release(
    scenario: ScenarioArgument,
    cell: ReleaseCell,
    *,
    finding: Annotated[
        str, typer.Option(metavar="SIGNATURE", help="This conflict alone, not all.")
    ] = "",
    wait: WaitOption = WaitLimit.HOST,
    trials: Annotated[int, typer.Option(min=3, help="Recorded runs that may be made.")] = 60,
    runs: Annotated[int, typer.Option(min=0, help="Runs under holds of what is repaired.")] = 400,
    log: LogOption = None,
    json: JsonOption = None,
) -> None:
    """Find the edges in the engine's own source that order what races in a scenario, prove them,
    and print them as a diff: exit codes as of `racegate repair`. Each is tried on an engine that is
    started with it in memory.
    """
    from racegate.jobs.triage.release_repairs import EditedEngines, repair_release

    packaging = kind_of(cell).packaging
    loaded = load_for(packaging.title, script_file(scenario, packaging.name))
    try:
        with SearchProgress() as progress:
            found = repair_release(
                EditedEngines(cell, loaded, log),
                wanted=finding.rpartition("/")[2],
                waiter_max=WaitKind[wait.name],
                runs_max=trials,
                landings_max=runs,
                on_trial=progress.show,
            )
    except BadInput as error:
        raise BadInputError(str(error)) from error
    text = printable_lines(render_repair(found, f"{loaded.name} on {cell.title}"))
    tell(json, found, lambda: _show(found.diff, text))
    raise typer.Exit(found.exit_code)


def _repair_engine(scenario: str, fault: str, json: str | None) -> ExitCode:
    """Of a seeded fault."""
    from racegate.check.checker import Checker
    from racegate.jobs.triage.repaired import repair_engine

    checker = Checker(load(script_file(Path(scenario))))
    found = repair_engine(checker, find_fault(fault))
    tell(json, found, lambda: print(printable_lines(render_repair(found, shlex.join(found.argv)))))
    return found.exit_code


def _judge(
    program: Program, file: Path, witness: Path | None, *, runs_max: int, json: str | None
) -> ExitCode:
    """A patch of the user's. The witnesses are of the program with the patch in its files."""
    patch = read_patch(read_text(file, SOURCE_BYTES_MAX), source=str(file))
    with open_device(stdout=PrintPlace.STDERR) as device:
        found, verdict, changed = judge_patch(
            device, program, patch, source=str(file), runs_max=runs_max
        )
    tell(json, found, lambda: print(printable_lines(render_patch(found, str(file)))))
    for written in save_witnesses(verdict, changed, witness) if witness is not None else ():
        say(f"wrote {written}: of the program with {file} in its files")
    return found.exit_code


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


export_app = typer.Typer(add_completion=False)


@export_app.command("export")
def export(
    witness: Annotated[Path, typer.Argument(metavar="WITNESS", help="Of a program.")],
    pytest: Annotated[
        Path,
        typer.Option("--pytest", metavar="FILE", callback=place_to_write, help="The test's file."),
    ],
    kind: Annotated[
        ExportedKind,
        typer.Option(help="regression: one test, which fails as long as the race is there."),
    ] = ExportedKind.CONTROL,
) -> None:
    """Write the finding of a witness as a test that needs no racegate: the program corrupts when
    one operation is late, and with its repair it does not; of a library: it does not.
    """
    known = PROGRAM_WITNESSES.load(witness)
    program = known.subject.checked(DeviceKind.VIRTUAL)
    with open_device(stdout=PrintPlace.STDERR) as device:
        text = export_test(device, program, known.signature, parse_holds(known.holds), kind=kind)
    write_text(pytest, text)
    say(
        f"wrote {pytest}: pytest {pytest} on a GPU, or, without one, racegate torch run "
        f"--error-exitcode 0 -m pytest {pytest}"
    )
