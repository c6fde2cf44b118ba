"""Expected: what a scenario has to come to, by the reference. The only module that knows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from racegate.oracles.stepwise import FLOAT_TOLERANCE
from racegate.scenario.config import OptionChange, resolve
from racegate.scenario.errors import BadInputError
from racegate.scenario.settings import UNJUDGED, DrafterKind, Numerics
from racegate.scenario.spec import OwnScenario, Request
from racegate_reference.decoding import plain_decode, truth
from racegate_reference.engine import ReferenceRun, run_reference
from racegate_reference.paths import Paths
from racegate_reference.ranks import by_rank

# Model seeds tried until a float scenario has no decision closer than the tolerance.
MODEL_SEEDS_MAX = 32


class CheckError(BadInputError):
    """The harness cannot judge a scenario; says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """A scenario that can be judged, and what it has to come to.

    reference: the run of the reference engine, which is the same under every schedule
    plain: request -> the tokens that plain decoding delivers; where drawn drafts decide them, those
        that the reference delivered
    truth: request -> the tokens that a scripted drafter proposes from; nothing for other drafters
    resolved: options that gave way to others
    warnings: what was changed so that the scenario can be judged
    """

    scenario: OwnScenario
    reference: ReferenceRun
    plain: Mapping[str, tuple[int, ...]]
    truth: Mapping[str, tuple[int, ...]]
    resolved: tuple[OptionChange, ...]
    warnings: tuple[str, ...]


def expected_of(scenario: OwnScenario, paths: Paths) -> Expected:
    """Resolves a scenario and runs the reference. paths: what it has computed of requests so far.

    Raises CheckError.
    """
    if not scenario.model.numerics.is_judged:
        raise CheckError(f"{scenario.name}: numerics {scenario.model.numerics} {UNJUDGED}")
    resolved = resolve(scenario)
    decidable, reference, notes = _decidable(resolved.scenario, paths)
    is_scripted = decidable.engine.drafter is DrafterKind.SCRIPTED
    observations = by_rank(reference.observations, decidable.model, ranks=decidable.engine.ranks)
    return Expected(
        scenario=decidable,
        reference=msgspec.structs.replace(reference, observations=observations),
        plain={
            request.name: _deliverable(decidable, request, reference, paths)
            for request in decidable.requests
        },
        truth=truth(decidable, paths=paths) if is_scripted else {},
        resolved=resolved.changes,
        warnings=(*(change.text for change in resolved.changes), *notes),
    )


def _deliverable(
    scenario: OwnScenario, request: Request, reference: ReferenceRun, paths: Paths
) -> tuple[int, ...]:
    """What a request has to deliver. With drawn drafts it is lossless in distribution only."""
    if scenario.engine.draws_drafts and request.temperature > 0.0:
        return reference.delivered[request.name]
    return plain_decode(scenario, request, paths=paths)


def plain_tokens(scenario: OwnScenario, request: Request) -> tuple[int, ...]:
    """What plain decoding on the CPU delivers for a request, by the reference."""
    return plain_decode(scenario, request)


def _decidable(
    scenario: OwnScenario, paths: Paths
) -> tuple[OwnScenario, ReferenceRun, tuple[str, ...]]:
    """The scenario with the first model seed whose decisions are all farther apart than the float
    tolerance.
    """
    first = scenario.model.seed
    for seed in range(first, first + MODEL_SEEDS_MAX):
        model = msgspec.structs.replace(scenario.model, seed=seed)
        candidate = msgspec.structs.replace(scenario, model=model)
        reference = run_reference(candidate, paths=paths)
        if scenario.model.numerics is Numerics.EXACT or reference.margin > FLOAT_TOLERANCE:
            note = f"model seed {first} has a decision within the tolerance; seed {seed} is used"
            return candidate, reference, () if seed == first else (note,)
    raise CheckError(
        f"{scenario.name}: none of the model seeds {first}..{seed} keeps every "
        f"decision farther apart than {FLOAT_TOLERANCE}; use a smaller vocabulary or fewer tokens"
    )
