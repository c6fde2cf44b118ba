"""Two versions of a program: the options that name a base, and what is said beside it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from racegate.cli.options import fail
from racegate.history.exit_code import ExitCode
from racegate.history.outcome import Comparison
from racegate.jobs.foreign.program_bases import (
    JudgesProgram,
    ProgramBase,
    base_of,
    compare_program,
)
from racegate.targets.program.judge import ProgramVerdict
from racegate.targets.program.launch import DeviceServer, Program


class AgainstOptions(NamedTuple):
    """What a program is compared with, if with anything: a script, or a folder of packages."""

    script: str = ""
    folder: Path | None = None

    def base_of(self, program: Program) -> ProgramBase | None:
        """Raises BadInput if it cannot be run."""
        if not (self.script or self.folder):
            return None
        return base_of(program, script=self.script, folder=self.folder)

    def replayed(self, beside: Comparison | None, told: Sequence[str]) -> Comparison | None:
        """What differs, with the command that shows it again. told: its options and program"""
        if beside is None:
            return None
        given = ["--against", self.script] if self.script else []
        given += ["--against-path", str(self.folder)] if self.folder else []
        return beside.replayed_by(shlex.join(["racegate", "torch", "run", *given, *told]))


def against_options(
    against: Annotated[
        str,
        typer.Option(
            metavar="SCRIPT",
            show_default=False,
            help="Compare with this script: only what differs is a finding.",
        ),
    ] = "",
    against_path: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Compare with the same program over the packages of this folder."
        ),
    ] = None,
) -> AgainstOptions:
    """The options that name a base."""
    return AgainstOptions(against, against_path)


def compared_with(
    how: JudgesProgram,
    device: DeviceServer,
    base: ProgramBase | None,
    judged: ProgramVerdict,
    program: Program,
) -> Comparison | None:
    """A program beside its base, if there is one and the program was not stopped."""
    if base is None or judged.is_interrupted:
        return None
    if judged.holds:
        fail("--hold is for one version: it cannot be compared with --against or --against-path")
    return compare_program(how, device, base, judged, program)


def code_beside(verdicts: ProgramVerdict, beside: Comparison | None) -> int:
    """Beside a base what differs from it decides, unless the run itself was nothing to compare."""
    code = verdicts.exit_code
    if beside is None or code == ExitCode.NOT_MODELLED:
        return code
    if beside.code is not ExitCode.CLEAN:
        return beside.code
    return ExitCode.CLEAN if code in (ExitCode.FINDING, ExitCode.INCONCLUSIVE) else code
