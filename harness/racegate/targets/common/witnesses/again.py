"""Whether another scenario shows the harm of a witness: the same operation, by place, and a landing
of it with the same effect and the same kind of value that is not true.
"""

from __future__ import annotations

import msgspec

from racegate.history.schedule import place_of, texts_of
from racegate.interpose.outcome import Ending, Plan
from racegate.scenario.spec import Scenario
from racegate.targets.common.cell import Runs
from racegate.targets.common.judge import RUNS_MAX, ReleaseTarget, gaps_of, racing_operations
from racegate.targets.common.landings import LandingRuns
from racegate.targets.common.search import Effect
from racegate.targets.common.witnesses.witness import Released, ReleaseWitness, losses_of


def shown_again(engine: Runs, witness: Released, scenario: Scenario) -> Released | None:
    """The witness with this scenario in the place of its own and the first landing that shows the
    harm there; None if no landing does, or if the run is wrong when nothing is held.
    """
    target = ReleaseTarget(engine, scenario, witness.subject, {})
    base = target.run(Plan())
    if base.ending is not Ending.FINISHED or base.is_wrong:
        return None
    place = place_of(witness.landing[0].op)
    racing = racing_operations(base.findings)
    runs = LandingRuns(target, {0: base}, runs_max=RUNS_MAX)
    for operation in [name for name in racing if place_of(name) == place]:
        for holds in gaps_of(runs, operation):
            landing = runs.under(holds)
            if not (landing.is_harmful and landing.is_realised):
                continue
            effect = Effect.WRONG if landing.what.is_wrong else Effect.DIVERGENT
            found = msgspec.structs.replace(
                witness,
                scenario=scenario,
                holds=texts_of(holds),
                effect=effect,
                wrong=landing.what.wrong,
                losses=losses_of(landing.what),
            )
            if _harm(found) == _harm(witness):
                return found
    return None


def _harm(witness: ReleaseWitness) -> tuple[Effect, bool, frozenset[str]]:
    """What is wrong, without steps, requests and rows."""
    kinds = frozenset(one.what.partition(" of ")[0] for one in witness.wrong)
    return witness.effect, bool(witness.losses), kinds
