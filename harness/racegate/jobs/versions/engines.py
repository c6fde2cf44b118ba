"""Histories of engines: every scenario in every release, each way to run it an engine that is
started once.
"""

from __future__ import annotations

import platform
import re
import shutil
import tempfile
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

import msgspec

from racegate.interpose.errors import BadInput
from racegate.jobs.environment import commit_here
from racegate.jobs.foreign.releases import OpenedEngine, open_release
from racegate.jobs.versions.cells import (
    CellConflict,
    CellReport,
    ScenarioReport,
    first_line,
    pairs_of,
)
from racegate.jobs.versions.kinds import EngineKind
from racegate.jobs.versions.running import Keep
from racegate.scenario.spec import Scenario
from racegate.targets.common.environment import cache_folder
from racegate.targets.common.judge import RUNS_MAX, ReleaseVerdict, judge
from racegate.targets.common.result import change_lines, wrong_lines
from racegate.targets.common.setup.progress import Say

_COUNT = re.compile(r"#\d+$")
_ABOVE = "message is above"  # of an engine that printed why it did not start


class Environments(StrEnum):
    """What becomes of an environment that was made for a history, once its cells are done."""

    KEPT = "kept"
    REMOVED = "removed"


class EngineHistory:
    """The history of an engine's releases, as `run_history` asks for it."""

    def __init__(
        self,
        kind: EngineKind,
        scenarios: Sequence[Scenario],
        *,
        runs_max: int = RUNS_MAX,
        environments: Environments = Environments.KEPT,
    ) -> None:
        self._kind = kind
        self._scenarios = {scenario.name: scenario for scenario in scenarios}
        self._runs_max = runs_max
        self._afterwards = environments
        self._made: set[str] = set()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._scenarios)

    def cells(self, version: str) -> Sequence[CellReport]:
        return self._kind.cells(version)

    def set_up(self, version: str, say: Say) -> None:
        if not self._folder(version).exists():
            self._made.add(version)
        self._kind.packaging.set_up(version, say, is_untried=True)

    def remove(self, version: str) -> None:
        if self._afterwards is Environments.REMOVED and version in self._made:
            shutil.rmtree(self._folder(version), ignore_errors=True)

    def _folder(self, version: str) -> Path:
        return cache_folder(self._kind.packaging.name) / version

    def judge(self, cell: CellReport, names: Sequence[str], keep: Keep) -> None:
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "engine.log"
            try:
                with open_release(self._kind.cell(cell), log=log) as opened:
                    self._judge_all(opened, cell, names, keep)
            except BadInput as error:
                raise BadInput(_with_end_of(log, str(error))) from error

    def _judge_all(
        self, opened: OpenedEngine, cell: CellReport, names: Sequence[str], keep: Keep
    ) -> None:
        now = msgspec.structs.replace(
            cell,
            python=platform.python_version(),
            sensitivity=cell.sensitivity or opened.sensitivity(),
        )
        for name in names:
            before = opened.engine.cpu_s
            judged = judge(
                opened.runs,
                self._scenarios[name],
                opened.cell,
                sensitivity=now.sensitivity,
                runs_max=self._runs_max,
            )
            one = scenario_report(judged, opened.engine.cpu_s - before)
            now = msgspec.structs.replace(
                now,
                torch=judged.shown.torch_version or now.torch,
                scenarios=now.scenarios | {name: one},
            )
            keep(now)


def _with_end_of(log: Path, text: str) -> str:
    if _ABOVE not in text or not log.exists():
        return text
    end = log.read_text(errors="replace").strip().rpartition("\n")[2]
    return f"{text}: {end}"


def scenario_report(judged: ReleaseVerdict, cpu_s: float) -> ScenarioReport:
    """What is kept of one verdict: operations by place, without the run's counts.

    cpu_s: of the processes of all its runs, in seconds
    """
    search = judged.search
    return ScenarioReport(
        verdict=judged.verdict,
        steps=judged.shown.steps,
        events=judged.shown.events,
        runs=0 if search is None else search.runs,
        is_complete=search is not None and search.is_complete,
        cpu_s=round(cpu_s, 1),
        commit=commit_here(),
        unmet=judged.unmet,
        wrong=tuple(wrong_lines(judged.shown)),
        message=first_line(judged.message),
        not_seen=judged.not_seen,
        conflicts=_conflicts(judged),
    )


def _conflicts(judged: ReleaseVerdict) -> tuple[CellConflict, ...]:
    """One for each pair of places with one effect."""
    found: dict[tuple[str, str, bool, str], CellConflict] = {}
    for one in judged.judged:
        first, second = one.race.first, one.race.second
        names = (_COUNT.sub("", first.label), _COUNT.sub("", second.label))
        lines = change_lines(one.landing) if one.landing is not None else []
        key = (*names, second.is_write, one.effect)
        known = found.get(key)
        found[key] = CellConflict(
            first=names[0],
            second=names[1],
            is_write=second.is_write,
            effect=one.effect,
            pairs=one.race.count + (known.pairs if known is not None else 0),
            landings=one.landings,
            does=known.does if known is not None else tuple(lines),
            holds=known.holds if known is not None else pairs_of(one.holds),
        )
    return tuple(found.values())
