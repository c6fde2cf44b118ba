"""A program beside its base: another script, or the same over another version of a package.

Both are judged alike on one started device. What differs from run to run of one version says
nothing: where a value differs, both are run once more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import msgspec

from racegate.history.outcome import Comparison
from racegate.interpose.errors import BadInput
from racegate.interpose.outcome import Plan, changed
from racegate.jobs.foreign.beside import ComparedRun, compare, untold_of
from racegate.targets.program.judge import (
    ProgramTarget,
    ProgramVerdict,
)
from racegate.targets.program.launch import DeviceServer, Program
from racegate.targets.program.launch import checked_program as found_program
from racegate.targets.program.renamed import as_of_script
from racegate.targets.program.result import ProgramResult, result_of_program


class JudgesProgram(Protocol):
    """How both versions are judged."""

    def __call__(
        self, device: DeviceServer, program: Program, *, is_quiet: bool = False
    ) -> ProgramVerdict: ...


NOTHING_OBSERVED = (
    "values: neither version observes any; mark them with racegate.observe(name, value)"
)


@dataclass(frozen=True, slots=True)
class ProgramBase:
    """What a program is compared with. program: how it is run; title: in words"""

    program: Program
    title: str


def base_of(program: Program, *, script: str, folder: Path | None) -> ProgramBase:
    """The base of a change: another script with the same arguments, or the same program with a
    folder whose packages come before all others. Raises BadInput.
    """
    argv = program.argv
    if script:
        if argv[0] == "-m":
            raise BadInput("--against SCRIPT is for a script; -m MODULE takes --against-path DIR")
        found_program((script,))
        argv = (script, *argv[1:])
    if folder is not None and not folder.is_dir():
        raise BadInput(f"--against-path {folder}: no such folder")
    path = "" if folder is None else str(folder.resolve())
    title = " over ".join(filter(None, (script or argv[0], str(folder or ""))))
    return ProgramBase(replace(program, argv=argv, path=path), title)


def compare_program(
    judge: JudgesProgram,
    device: DeviceServer,
    base: ProgramBase,
    judged: ProgramVerdict,
    program: Program,
) -> Comparison:
    """A program that was judged, beside its base, which is judged now. Raises BadInput if nothing
    that the base imports comes from its folder.
    """
    its = judge(device, base.program, is_quiet=True)
    if base.program.path and its.is_finished and not its.base.imported:
        raise BadInput(
            f"nothing that the program imports comes from {base.program.path}: the folder is put "
            "before all others, as PYTHONPATH; it must be the one that has the package in it"
        )
    names = (Path(base.program.argv[0]).name, Path(program.argv[0]).name)
    old, new = _compared(its, base.title, names), _compared(judged, program.argv[0])
    found = compare(old, new)
    if found.changed is None:
        return found
    unstable = _unstable(device, base.program, its) | _unstable(device, program, judged)
    return compare(old, new, unstable=unstable) if unstable else found


def with_comparison(result: ProgramResult, beside: Comparison | None) -> ProgramResult:
    """The result of a program, beside its base if there is one."""
    if beside is None:
        return result
    unseen = () if result.observations else (NOTHING_OBSERVED,)
    return msgspec.structs.replace(result, comparison=beside, not_seen=(*result.not_seen, *unseen))


def _unstable(device: DeviceServer, program: Program, judged: ProgramVerdict) -> frozenset[str]:
    """Names of observations that are others in another run of the same version."""
    again = ProgramTarget(device, program).run(Plan(is_recording=False))
    return frozenset(changed(judged.base.observations, again.observations))


def _compared(judged: ProgramVerdict, title: str, names: tuple[str, str] = ("", "")) -> ComparedRun:
    """A program as it is compared, with the findings that nobody lets stand. names: of its script,
    and what it is called instead, so that places of two scripts have one name
    """
    result, base = result_of_program(judged, title), judged.base
    standing = {race.signature for race in judged.standing}
    findings = tuple(
        as_of_script(one, *names)
        for one in result.findings
        if one.race is None or one.race.signature in standing
    )
    return ComparedRun(
        result=msgspec.structs.replace(result, target=title, findings=findings),
        ending=base.ending,
        exit_code=base.exit_code,
        message=base.message,
        seen=base.observations,
        untold=untold_of(base.kernels),
    )
