"""Whether another scenario shows the harm of a witness: the same operation, by place, and a landing
of it with the same effect and the same kind of value that is not true.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from racegate.history.schedule import FORCED
from racegate.interpose.outcome import Ending, Plan
from racegate.order.recorder import place_of
from racegate.scenario.spec import Scenario
from racegate.targets.common.cell import Runs
from racegate.targets.common.report import wrong_lines
from racegate.targets.common.search import Effect, Holds, is_wrong, racing_operations
from racegate.targets.common.wire import Told
from racegate.targets.vllm.witness import EngineWitness


def shown_again(engine: Runs, witness: EngineWitness, scenario: Scenario) -> EngineWitness | None:
    """The witness with this scenario in the place of its own and the first landing that shows the
    harm there; None if no landing does, or if the run is wrong when nothing is held.
    """
    base = engine.run(scenario, Plan())
    if base.outcome.ending is not Ending.FINISHED or is_wrong(base):
        return None
    place = place_of(witness.holds[0][0])
    racing = racing_operations(base.outcome.findings)
    for operation in [name for name in racing if place_of(name) == place]:
        for holds, told in _landings(engine, scenario, operation):
            if told.seen == base.seen or not all(told.outcome.realised.values()):
                continue
            effect = Effect.WRONG if is_wrong(told) else Effect.DIVERGENT
            found = msgspec.structs.replace(
                witness, scenario=scenario, holds=holds, effect=effect,
                wrong=tuple(wrong_lines(told)),
            )  # fmt: skip
            if _harm(found) == _harm(witness):
                return found
    return None


def _landings(engine: Runs, scenario: Scenario, operation: str) -> Iterator[tuple[Holds, Told]]:
    """As late as can be, then in each gap."""
    holds: Holds = ((operation, FORCED),)
    told = engine.run(scenario, Plan(holds=holds, is_recording=False))
    yield holds, told
    for gap in told.gaps.get(operation, ())[1:]:
        holds = ((operation, gap),)
        yield holds, engine.run(scenario, Plan(holds=holds, is_recording=False))


def _harm(witness: EngineWitness) -> tuple[Effect, frozenset[str]]:
    """What is wrong, without steps, requests and rows."""
    words = (line.partition(": ")[2] or line for line in witness.wrong)
    return witness.effect, frozenset(word.partition(" of ")[0].split(":")[0] for word in words)
