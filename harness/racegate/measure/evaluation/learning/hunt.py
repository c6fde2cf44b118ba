"""Hunts: the first scenario of a sequence that notices a target, each in one eager run.

A missing order is seen in the first schedule, and so is a defect that no order decides: a scenario
more is a schedule more.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from functools import partial

from racegate.check.checker import Checker
from racegate.check.expected import CheckError
from racegate.faults.fault import Fault
from racegate.history.breakage import Caught
from racegate.history.exit_code import ExitCode
from racegate.history.finding import exit_code
from racegate.measure.evaluation.learning.sequences import ScenarioSequence
from racegate.measure.evaluation.learning.targets import HuntTarget
from racegate.measure.evaluation.source.child import ChildLimits, Say, in_a_child, more_time
from racegate.measure.evaluation.source.exchange import exchange
from racegate.measure.evaluation.source.results import SourceMutant
from racegate.measure.evaluation.source.sources import ROOT, module_of
from racegate.scenario.errors import BrokenHarnessError

# An eager run takes a tenth of a second.
LIMITS = ChildLimits(cpu_s=8, wall_s=600)
# Scenarios that a child looks at: their references are computed before it is forked.
IN_A_CHILD = 16


class Hunter:
    """Tries the scenarios of one sequence on targets."""

    def __init__(self, sequence: ScenarioSequence) -> None:
        self._sequence = sequence
        self._checkers: dict[int, Checker | None] = {}

    def first(self, target: HuntTarget) -> int | None:
        """The index of the first scenario that notices a target; None if none does, or if it cannot
        be put into a process that runs.
        """
        indices = self._sequence.concerned[target.name]
        if target.mutant is not None:
            return self._first_in_children(target.mutant, indices)
        fault = target.fault
        return next((i for i in indices if is_noticed(self._checker(i), fault)), None)

    def _checker(self, index: int) -> Checker | None:
        """None where nothing can be judged."""
        if index not in self._checkers:
            try:
                self._checkers[index] = self._sequence.checker(index)
            except CheckError:
                self._checkers[index] = None
        return self._checkers[index]

    def _first_in_children(self, mutant: SourceMutant, indices: Sequence[int]) -> int | None:
        for start in range(0, len(indices), IN_A_CHILD):
            some = {index: self._checker(index) for index in indices[start : start + IN_A_CHILD]}
            heard = in_a_child(partial(_try_mutant, mutant, some), LIMITS)
            last = heard.lines[-1] if heard.lines else "nothing"
            if last == "end":
                continue
            if not last.isdecimal():
                raise BrokenHarnessError(f"{mutant.name}: its process ended at {last}")
            # It was found, or the mutant did not come to an end.
            return int(last)
        return None


def _try_mutant(mutant: SourceMutant, some: Mapping[int, Checker | None], say: Say) -> None:
    """In a child: says at which scenario it is, and ends there if that one notices."""
    before = (ROOT / mutant.file).read_bytes()
    module = importlib.import_module(module_of(mutant.file))
    if not exchange(module, before, mutant.edit.apply(before)):
        some = {}  # a function that goes by another name: nobody notices
    for index, checker in some.items():
        say(str(index))
        more_time(LIMITS.cpu_s)
        if is_noticed(checker, None):
            return
    say("end")


def is_noticed(checker: Checker | None, fault: Fault | None) -> bool:
    """Whether a campaign would end with a finding, or say that the harness is broken."""
    if checker is None:
        return False
    with Caught("hunting", through=()):
        verdict = checker.run(fault=fault).verdict
        return exit_code([verdict]) in (ExitCode.FINDING, ExitCode.BROKEN_HARNESS)
    return True
