"""All that a report to the maintainers of a library needs, measured in one go: the finding of a
witness again, its repair with proof and price, and a plain test that was run.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import msgspec

from racegate.history.finding import Race
from racegate.history.schedule import Holds, parse_holds
from racegate.interpose.errors import BadInput
from racegate.interpose.outcome import DeviceKind, Outcome, Plan
from racegate.targets.program.judge import under
from racegate.targets.program.launch import DeviceServer, Program
from racegate.targets.program.repairs.edges import SourceFiles, path_of
from racegate.targets.program.repairs.exported import export_test
from racegate.targets.program.repairs.proof import (
    ProgramRepair,
    repair_program,
    repaired_in,
    verdict_on,
)
from racegate.targets.program.repairs.trials import Trials
from racegate.targets.program.words import difference
from racegate.targets.program.workflow.witness import ProgramWitness


class PlainTestReport(msgspec.Struct, frozen=True, kw_only=True):
    """A finding as a test without racegate. text: of the module, empty where there can be none
    why_not: the reason for that; exit_code: of pytest on the virtual device
    """

    text: str = ""
    why_not: str = ""
    exit_code: int = 0


class UpstreamMaterial(msgspec.Struct, frozen=True, kw_only=True):
    """What a report is made of.

    race: the two accesses with their stacks; holds: under which it does harm
    changes: what is then observed, or how the program then ends, in words
    repair: of all conflicts of the program, in the library where that can be; test: the plain one
    torch_version: of this run
    """

    race: Race
    holds: tuple[str, ...]
    changes: tuple[str, ...]
    repair: ProgramRepair
    test: PlainTestReport
    torch_version: str


def upstream_material(
    device: DeviceServer, witness: ProgramWitness, *, runs_max: int
) -> UpstreamMaterial:
    """Runs the program of a witness as it is and under its holds, repairs it, and runs the test.

    Raises BadInput if the program has the finding no longer, or if the holds show nothing.
    """
    program = witness.subject.checked(DeviceKind.VIRTUAL)
    holds = parse_holds(witness.holds)
    shown = under(device, program, holds, polls=witness.polls)
    race = next((one for one in shown.base.findings if one.signature == witness.signature), None)
    if race is None:
        raise BadInput(f"the program has no finding {witness.signature} here")
    changes = _changes(shown.base, shown.shown)
    if not changes:
        raise BadInput(f"under its holds the program does here as without: {witness.title}")
    return UpstreamMaterial(
        race=race,
        holds=witness.holds,
        changes=changes,
        repair=_repaired(device, program, holds, runs_max),
        test=_tested(device, program, witness),
        torch_version=shown.base.torch_version,
    )


def _repaired(device: DeviceServer, program: Program, holds: Holds, runs_max: int) -> ProgramRepair:
    """By lines of the library, which a report is about; by the script's too if these do not do."""
    trials, script = Trials(device, program, SourceFiles(), runs_max), path_of(program.argv[0])
    found = repaired_in(trials, verdict_on(device), holds=holds, untouched=script)
    return repair_program(device, program, holds=holds, runs_max=runs_max) if found.left else found


def _changes(base: Outcome, held: Outcome) -> tuple[str, ...]:
    """How the run under holds ended, if not as the other, and the first value that differs."""
    is_same = (held.ending, held.exit_code) == (base.ending, base.exit_code)
    ended = [] if is_same else [f"it ends otherwise: {held.message or held.ending}"]
    lines = difference(base.observations, held.observations, "under the hold")
    return tuple(line.strip() for line in [*ended, *lines])


def _tested(device: DeviceServer, program: Program, witness: ProgramWitness) -> PlainTestReport:
    try:
        text = export_test(device, program, witness.signature, parse_holds(witness.holds))
    except BadInput as error:
        return PlainTestReport(why_not=str(error))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "test_upstream.py"
        file.write_text(text, encoding="utf-8")
        told = file.with_suffix(".xml")
        options = ("-q", "-p", "no:cacheprovider", "-c", os.devnull, "--junit-xml", str(told))
        ended = device.run(Program(("-m", "pytest", *options, str(file))), Plan(), is_quiet=True)
        if ended.exit_code and "assert late" not in told.read_text(encoding="utf-8"):
            return PlainTestReport(why_not="on the virtual device it fails before it compares")
    return PlainTestReport(text=text, exit_code=ended.exit_code)
