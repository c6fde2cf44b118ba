"""The gate as judge of a mutant: each scenario looked at as the gate does, its canaries, and the
witnesses that must fail. A kernel's mutant is one of its Python, so nothing runs in C.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from racegate.check.checker import Checkers
from racegate.check.repro.replay import replay
from racegate.check.repro.search import BUDGET
from racegate.check.selfcheck import plant_canaries
from racegate.device.virtual.compiled import refused_core
from racegate.history.breakage import Caught
from racegate.history.exit_code import ExitCode
from racegate.history.finding import Verdict, exit_code
from racegate.history.replayed import ReplayOutcome
from racegate.history.witness import load_witnesses
from racegate.jobs.gate import GateJudge
from racegate.measure.evaluation.source.child import ChildLimits, Say, more_time
from racegate.measure.evaluation.source.reach import LineReach, LineRecorder
from racegate.scenario.files import load_all, scenario_paths
from racegate.scenario.spec import OwnScenario

WITNESSES = "witnesses"
CANARIES = "canaries"
# An eager run takes a tenth of a second; a ladder makes up to BUDGET of them.
LIMITS = ChildLimits(cpu_s=8, wall_s=600)
LADDER_CPU_S = 60.0


def load_scripts(folder: Path) -> dict[str, OwnScenario]:
    """The gate's scenarios by name."""
    return {scenario.name: scenario for _, scenario in load_all(scenario_paths(folder))}


class GateLook:
    """Looks at scenarios by name; what the reference computes is kept for the children."""

    limits = LIMITS

    def __init__(self, folder: Path) -> None:
        self._scripts = load_scripts(folder)
        self._witnesses = {
            path.name: witness for path, witness in load_witnesses(folder / WITNESSES)
        }
        self._checkers = Checkers()

    @property
    def names(self) -> tuple[str, ...]:
        """Of scenarios and witnesses."""
        return (*self._scripts, *self._witnesses)

    def prepare(self) -> None:
        """What every child would do again: the reference of every scenario."""
        for scenario in self._scripts.values():
            self._checkers.of(scenario)

    def judge(self, names: Sequence[str], say: Say) -> None:
        """In a child: one after the other, until the gate would end with a finding, or broken."""
        scripts = [name for name in names if name in self._scripts]
        witnesses = [name for name in names if name in self._witnesses]
        for name in (*scripts, CANARIES, *witnesses):
            say(f"at {name}")
            more_time(LIMITS.cpu_s)
            verdict = self.judge_one(name)
            if verdict is not Verdict.PROVED:
                say(f"found {verdict}")
            if exit_code([verdict]) in (ExitCode.FINDING, ExitCode.BROKEN_HARNESS):
                return

    def judge_one(self, name: str) -> Verdict:
        """What the gate says of a scenario, its canaries or a witness."""
        with refused_core():
            if name == CANARIES:
                return Verdict.PROVED if self._are_canaries_found() else Verdict.BROKEN_HARNESS
            return self._replayed(name) if name in self._witnesses else self._verdict(name)

    def _replayed(self, name: str) -> Verdict:
        """A witness that does not show what it must is a finding of the gate."""
        with Caught(name, through=()):
            outcome = replay(
                self._witnesses[name], times=1, command="", checkers=self._checkers
            ).outcome
            is_shown = outcome is ReplayOutcome.REPRODUCED
            return Verdict.PROVED if is_shown else Verdict.DIVERGENT
        return Verdict.BROKEN_HARNESS

    def _verdict(self, name: str) -> Verdict:
        """Eagerly first, as the ladder begins: it is climbed only for a conflict."""
        with Caught(name, through=()) as caught:
            checker = self._checkers.of(self._scripts[name])
            first = GateJudge(budget=None)(checker, None).verdict
            if first is not Verdict.CONFLICT:
                return first
            more_time(LADDER_CPU_S)
            return GateJudge(budget=BUDGET)(checker, None).verdict
        assert caught.breakage is not None
        return Verdict.BROKEN_HARNESS

    def _are_canaries_found(self) -> bool:
        with Caught(CANARIES, through=()):
            return plant_canaries(GateJudge(budget=BUDGET)).is_sound
        return False


class GateRecording:
    """Says which lines each scenario and each witness executes."""

    def __init__(self, folder: Path, root: Path, files: Sequence[Path]) -> None:
        self._look = GateLook(folder)
        self._root = root
        self._files = files

    def prepare(self) -> None:
        """The references, whose lines nobody counts."""
        self._look.prepare()

    def record(self, part: str) -> LineReach:
        """All of them: there is one part."""
        recorder = LineRecorder(self._root, self._files)
        with recorder.counting():
            for name in self._look.names:
                recorder.turn_to(name)
                started = time.process_time()
                self._look.judge_one(name)
                recorder.took(name, time.process_time() - started)
        return recorder.reach()
