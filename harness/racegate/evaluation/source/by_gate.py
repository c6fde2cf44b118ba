"""The gate as judge of a mutant: each scenario looked at as the gate does, then its canaries."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from racegate.check.checker import Checkers
from racegate.check.selfcheck import plant_canaries
from racegate.evaluation.source.child import Limits, Say, more_time
from racegate.evaluation.source.reach import Reach, Recorder
from racegate.history.breakage import Caught
from racegate.history.exit_code import ExitCode
from racegate.history.finding import Verdict, exit_code
from racegate.jobs.gate import GateJudge
from racegate.repro.search import BUDGET
from racegate.scenario.files import load_all, scenario_paths
from racegate.scenario.spec import Scenario

CANARIES = "canaries"
# An eager run takes a tenth of a second; a ladder makes up to BUDGET of them.
LIMITS = Limits(cpu_s=8, wall_s=600)
LADDER_CPU_S = 60.0


def load_scripts(folder: Path) -> dict[str, Scenario]:
    """The gate's scenarios by name."""
    return {scenario.name: scenario for _, scenario in load_all(scenario_paths(folder))}


class GateLook:
    """Looks at scenarios by name; what the reference computes is kept for the children."""

    limits = LIMITS

    def __init__(self, folder: Path) -> None:
        self._scripts = load_scripts(folder)
        self._checkers = Checkers()

    def prepare(self) -> None:
        """What every child would do again: the reference of every scenario."""
        for scenario in self._scripts.values():
            self._checkers.of(scenario)

    def judge(self, names: Sequence[str], say: Say) -> None:
        """In a child: one scenario after the other, until one is no pass nor only inconclusive."""
        for name in names:
            say(f"at {name}")
            more_time(LIMITS.cpu_s)
            verdict = self._verdict(name)
            if verdict is not Verdict.PROVED:
                say(f"found {verdict}")
            if exit_code([verdict]) in (ExitCode.FINDING, ExitCode.BROKEN_HARNESS):
                return
        say(f"at {CANARIES}")
        more_time(LIMITS.cpu_s)
        if not self._are_canaries_found():
            say(f"found {Verdict.BROKEN_HARNESS}")

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


def record_gate(folder: Path, root: Path, files: Sequence[Path]) -> Reach:
    """Which lines each scenario executes. Nothing of it is remembered from one to the next."""
    scripts: Mapping[str, Scenario] = load_scripts(folder)
    checkers = Checkers()
    for scenario in scripts.values():
        checkers.of(scenario)
    recorder = Recorder(root, files)
    with recorder.counting():
        for name, scenario in scripts.items():
            recorder.turn_to(name)
            started = time.process_time()
            GateJudge(budget=None)(checkers.of(scenario), None)
            recorder.took(name, time.process_time() - started)
    return recorder.reach()
