"""The history of a package by a program that uses it: one cell for each version."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path
from shlex import join

import msgspec

from racegate.history.finding import Finding, Race, Verdict
from racegate.history.schedule import parse_holds
from racegate.interpose.outcome import Ending
from racegate.jobs.environment import commit_here
from racegate.jobs.versions.cells import (
    CellConflict,
    CellReport,
    ScenarioReport,
    first_line,
    pairs_of,
)
from racegate.jobs.versions.running import Keep
from racegate.targets.common.environment import Run, run_pip
from racegate.targets.common.search import Effect
from racegate.targets.common.setup.progress import Say
from racegate.targets.program.environment import environment_of_version, judge_in
from racegate.targets.program.result import ProgramResult

SILENT = "no conflict"
_EFFECTS = {Verdict.DIVERGENT: Effect.DIVERGENT, Verdict.BENIGN: Effect.BENIGN}
# What a version is judged with, in the order in which the worst one counts.
RACY = (Verdict.DIVERGENT, Verdict.CONFLICT, Verdict.BENIGN)


class ProgramHistory:
    """The history of a package, as `run_history` asks for it.

    beside: what else is installed with each version, as pip writes it
    folder: of the environments; run: what runs pip
    """

    def __init__(
        self,
        program: tuple[str, ...],
        package: str,
        *,
        folder: Path,
        beside: tuple[str, ...] = (),
        runs_max: int,
        run: Run = run_pip,
    ) -> None:
        self._program = program
        self._package = package
        self._beside = beside
        self._folder = folder
        self._runs_max = runs_max
        self._run = run

    @property
    def names(self) -> tuple[str, ...]:
        return (join(self._program),)

    def cells(self, version: str) -> Sequence[CellReport]:
        return (CellReport(release=version),)

    def set_up(self, version: str, say: Say) -> None:
        say(f"{version}: {self._package}=={version} on this Python's torch")
        self._python(version)

    def remove(self, version: str) -> None:
        """Environments of programs are small, and kept."""

    def _python(self, version: str) -> Path:
        return environment_of_version(
            self._package, version, self._beside, self._folder, run=self._run
        )

    def judge(self, cell: CellReport, names: Sequence[str], keep: Keep) -> None:
        options = ("--explore", "--runs", str(self._runs_max))
        found = judge_in(self._python(cell.release), self._program, *options)
        (name,) = names
        now = msgspec.structs.replace(
            cell,
            python=platform.python_version(),
            torch=found.result.torch_version,
            scenarios={name: program_report(found.result, found.cpu_s)},
        )
        keep(now)


def word_of(result: ProgramResult) -> str:
    """The worst verdict of all findings, `no conflict`, how the recorded run ended, or why it says
    nothing of the program.
    """
    if result.ending is not Ending.FINISHED:
        return str(result.ending)
    if result.changes:
        return Verdict.DIVERGENT
    if not result.findings:
        return "; ".join(result.unmet) or SILENT
    words = {finding.verdict for finding in result.findings} - {None} or {Verdict.CONFLICT}
    return next(word for word in RACY if word in words)


def program_report(result: ProgramResult, cpu_s: float) -> ScenarioReport:
    """What is kept of a program's verdict. cpu_s: of the processes of all its runs, in seconds"""
    return ScenarioReport(
        verdict=word_of(result),
        steps=0,
        events=result.stats.ops,
        runs=result.stats.schedules - 1,
        is_complete=result.is_complete,
        cpu_s=cpu_s,
        commit=commit_here(),
        message=first_line(result.message),
        not_seen=result.not_seen,
        conflicts=tuple(_conflict(one, one.race) for one in result.findings if one.race),
    )


def _conflict(finding: Finding, race: Race) -> CellConflict:
    effect = Effect.UNKNOWN
    if finding.verdict is not None:
        effect = _EFFECTS.get(finding.verdict, Effect.UNKNOWN)
    return CellConflict(
        first=race.first.place,
        second=race.second.place,
        is_write=race.second.is_write,
        effect=effect,
        pairs=race.count,
        landings=0,
        does=(race.edge,),
        holds=pairs_of(parse_holds(finding.holds)),
    )
