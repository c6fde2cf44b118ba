"""The repair of a race in the source of an engine: a candidate is put into the text that the engine
is started with, and the scenario run on that.
"""

from __future__ import annotations

import hashlib
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from racegate.history.verdict import verdict_text
from racegate.interpose.errors import BadInput
from racegate.interpose.outcome import Ending, Observation, Outcome, Plan, Sources
from racegate.jobs.foreign.releases import OpenedEngine, open_release
from racegate.scenario.errors import BrokenHarnessError
from racegate.scenario.spec import Scenario
from racegate.targets.common.cell import EngineCell
from racegate.targets.common.judge import judge
from racegate.targets.program.launch import Program
from racegate.targets.program.repairs.edges import SourceFiles, WaitKind
from racegate.targets.program.repairs.proof import OnTrial, ProgramRepair, repaired_in
from racegate.targets.program.repairs.trials import Trials


@dataclass(slots=True)
class EditedEngines:
    """Runs of a scenario, as those of a program: an engine is started for every other set of
    sources, and serves until the next one.

    cell: which engine; log: where what it prints goes, if not to standard error
    """

    cell: EngineCell
    scenario: Scenario
    log: Path | None
    _stack: ExitStack = field(default_factory=ExitStack)
    _opened: tuple[Sources, OpenedEngine] | None = None

    def opened(self, sources: Sources) -> OpenedEngine:
        """The engine with these sources. Raises BadInput or BrokenHarnessError if it does not
        start.
        """
        if self._opened is None or self._opened[0] != sources:
            self.close()
            engine = self._stack.enter_context(
                open_release(self.cell, log=self.log, sources=sources)
            )
            self._opened = sources, engine
        return self._opened[1]

    def close(self) -> None:
        """Ends the engine that serves."""
        self._opened = None
        self._stack.close()

    def run(
        self, program: Program, plan: Plan, *, is_quiet: bool = False, stdout: Path | None = None
    ) -> Outcome:
        """One run of the scenario. What is delivered, and what is not true, is observed too. An
        engine that does not start with these sources has failed.
        """
        try:
            found = self.opened(program.sources).runs.run(self.scenario, plan)
        except (BadInput, BrokenHarnessError) as error:
            self.close()
            if not program.sources:
                raise
            return Outcome(ending=Ending.FAILED, exit_code=1, message=str(error))
        values = msgspec.json.encode((found.delivered, found.wrong, found.untrue))
        digest = hashlib.sha256(values).hexdigest()[:16]
        delivered = Observation("what is delivered", digest, values.decode())
        return msgspec.structs.replace(found, observations=(*found.observations, delivered))

    def verdict(self, program: Program, runs_max: int) -> str:
        """What the judge of releases says, with the landings of what still races."""
        opened = self.opened(program.sources)
        judged = judge(opened.runs, self.scenario, self.cell, runs_max=runs_max)
        return verdict_text(judged.verdict, judged.tried)


def repair_release(
    engines: EditedEngines,
    *,
    wanted: str = "",
    waiter_max: WaitKind = WaitKind.HOST,
    runs_max: int,
    landings_max: int,
    on_trial: OnTrial = lambda made, most: None,
) -> ProgramRepair:
    """Looks for the cheapest edges that order what races in a scenario, or one of the conflicts.

    wanted: the signature of the one, empty for all; runs_max: recorded runs that may be made
    landings_max: runs under holds of the repaired engine

    Raises BadInput if the engine as it is does not start.
    """
    program = Program((engines.scenario.name,))
    with closing(engines):
        return repaired_in(
            Trials(engines, program, SourceFiles(), runs_max),
            lambda repaired: engines.verdict(repaired, landings_max),
            wanted=wanted,
            waiter_max=waiter_max,
            on_trial=on_trial,
        )
