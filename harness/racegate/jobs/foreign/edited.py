"""A release with an edit of its own source, beside the release: what its gate would notice of it in
the recorded runs. One engine is started, and edited in the process that is forked for a run; its
siblings are edited beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from queue import SimpleQueue
from time import monotonic

import msgspec

from racegate.history.exit_code import ExitCode
from racegate.history.finding import Finding, FindingKind
from racegate.history.outcome import RunResult
from racegate.interpose.errors import BadInput
from racegate.interpose.outcome import Ending, Plan
from racegate.jobs.foreign.beside import ComparedRun, compare, compared_run
from racegate.jobs.foreign.changes import KnownLines, Lines
from racegate.jobs.foreign.releases import OpenedEngine, ReleaseCell, in_threads
from racegate.scenario.spec import Scenario
from racegate.targets.common.client import Engine
from racegate.targets.common.judge import ReleaseVerdict, judge
from racegate.targets.common.result import result_of
from racegate.targets.common.wire import (
    NOT_EDITED,
    ReleaseRun,
    SourceEdit,
    SourceOptions,
    SourceProbe,
)

# A run that an edit keeps from ending, in seconds beside those of the release's own run.
LONGER_S, LONGER_TIMES = 30.0, 10.0
_SHOWN_MAX = 140


class RecordedScenario(msgspec.Struct, frozen=True, kw_only=True):
    """A scenario on the release. lines: of its sources that ran, by path below its package

    run_s: how long the recorded run took
    """

    scenario: Scenario
    base: ComparedRun
    lines: Lines
    run_s: float


class EditResult(msgspec.Struct, frozen=True, kw_only=True):
    """What the gate says of an edit in one scenario. code: that it would end with; what: in words

    is_edited: whether the edit was made: not in what only an import does
    """

    code: ExitCode
    what: str = ""
    is_edited: bool = True


@dataclass(frozen=True, slots=True)
class _EditedRuns:
    """See `Runs`. timeout_s: of each"""

    engine: Engine
    edit: SourceEdit
    timeout_s: float

    def run(self, scenario: Scenario, plan: Plan) -> ReleaseRun:
        sources = SourceOptions(edit=self.edit)
        return self.engine.run(scenario, plan, sources=sources, timeout_s=self.timeout_s)


@dataclass(frozen=True, slots=True)
class EditedRelease:
    """An engine that is edited. opened: is started"""

    opened: OpenedEngine
    _recorded: dict[str, RecordedScenario] = field(default_factory=dict)

    def record(self, scenarios: Sequence[Scenario], on_done: Callable[[str], None]) -> None:
        """Runs each scenario that the engine can run, as the release has it: as a base, and again
        to see which lines run, if that is not kept of an earlier time, on the engine and its
        siblings. Raises BadInput if a run does not end, with how long it may take: nothing can be
        told beside it.
        """
        cell = self.opened.cell
        assert isinstance(cell, ReleaseCell)
        content = KnownLines(cell, lambda: self.opened).content()
        able = [scenario for scenario in scenarios if not cell.cannot_run(scenario)]
        each = FreeReleases(self)

        def one(scenario: Scenario) -> RecordedScenario:
            with each.taken() as free:
                return free._record(scenario, cell, content)

        with in_threads(each.count, ReleaseRun) as in_order:
            for found in in_order(one, able):
                self._recorded[found.scenario.name] = found
                on_done(found.scenario.name)

    def _record(self, scenario: Scenario, cell: ReleaseCell, content: str) -> RecordedScenario:
        begun = monotonic()
        judged = self._judge(self.opened.engine, scenario)
        run_s = monotonic() - begun
        if judged.is_lost:
            raise BadInput(f"scenario {scenario.name} was not recorded: {judged.base.message}")
        return RecordedScenario(
            scenario=scenario,
            base=compared_run(judged, result_of(judged, scenario.name)),
            lines=KnownLines(cell, lambda: self.opened).one(scenario, content),
            run_s=run_s,
        )

    @property
    def recorded(self) -> dict[str, RecordedScenario]:
        """By the name of the scenario."""
        return self._recorded

    def alike(self, name: str, probes: tuple[SourceProbe, ...]) -> tuple[int, ...]:
        """The numbers of the other expressions of probes that have the same value as the release's
        own wherever a recorded scenario comes by; none if to evaluate them has changed something.
        """
        known = self._recorded[name]
        sources = SourceOptions(probes=probes)
        probed = self.opened.engine.run(known.scenario, Plan(), sources=sources)
        return probed.alike if probed.inner == known.base.seen else ()

    def noticed(self, name: str, edit: SourceEdit) -> EditResult:
        """What is said of an edit in a recorded scenario. Raises ServerLost if the engine is."""
        result = self.result(name, edit)
        if result is None:
            return EditResult(code=ExitCode.CLEAN, is_edited=False)
        found = result.comparison
        if found is None:
            return EditResult(code=ExitCode.BROKEN_HARNESS, what=result.message)
        what = _words(found.findings[0]) if found.findings else "; ".join(found.unmet)
        return EditResult(code=found.code, what=what)

    def result(self, name: str, edit: SourceEdit) -> RunResult | None:
        """The result of a recorded scenario with an edit, beside the release: as the gate tells
        it. None if the edit cannot be made while the engine runs; without a comparison, and with
        the reason, where the run has no end. Raises ServerLost if the engine is lost.
        """
        known = self._recorded[name]
        timeout_s = LONGER_S + LONGER_TIMES * known.run_s
        judged = self._judge(_EditedRuns(self.opened.engine, edit, timeout_s), known.scenario)
        run = judged.base
        if run.ending is Ending.NOT_MODELLED and run.message.endswith(NOT_EDITED):
            return None
        result = result_of(judged, name)
        if result.is_lost:
            return msgspec.structs.replace(result, message=f"no end: {run.ending}")
        others = [(one.base.result, one.base.result) for one in self._recorded.values()]
        found = compare(known.base, compared_run(judged, result), others=others)
        return msgspec.structs.replace(result, comparison=found)

    def _judge(self, runs: Engine | _EditedRuns, scenario: Scenario) -> ReleaseVerdict:
        return judge(runs, scenario, self.opened.cell, runs_max=0)


class FreeReleases:
    """A release on its engine and on each of its siblings, taken by one thread at a time: all know
    what was recorded on one.
    """

    def __init__(self, release: EditedRelease) -> None:
        every = (*release.opened.siblings, release.opened)
        self.count = len(every)
        self._free = SimpleQueue[EditedRelease]()
        for opened in every:
            self._free.put(replace(release, opened=opened))

    @contextmanager
    def taken(self) -> Iterator[EditedRelease]:
        """One that nobody has, once there is one."""
        release = self._free.get()
        try:
            yield release
        finally:
            self._free.put(release)


def _words(finding: Finding) -> str:
    """Short, and without a path of this machine."""
    kind = "CHANGED" if finding.kind is FindingKind.CHANGE else "NEW"
    text = f"{kind} {finding.message}".partition(", and no path of edges")[0].replace("\n", " ")
    words = [word.rpartition("/site-packages/")[2] for word in text.split(" ")]
    shown = " ".join(word for word in words if not word.startswith(("/", "'/")))
    return shown if len(shown) <= _SHOWN_MAX else f"{shown[:_SHOWN_MAX]}..."
