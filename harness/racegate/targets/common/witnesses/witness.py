"""A witness of a landing that does harm in a release: what was wrong in it stands as data, by which
a replay is compared.

Operations are named by function, buffer and count, so a witness of one release can be tried on the
next.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from racegate.history.finding import Verdict
from racegate.history.replayed import ReplayOutcome
from racegate.history.schedule import Holds, parse_holds, texts_of
from racegate.history.witness import SealedWitness, recorded_race, save, sealed, versions
from racegate.scenario.spec import Scenario
from racegate.scenario.strict import StrictStruct
from racegate.scenario.validation import validate
from racegate.targets.common.cell import EngineCell
from racegate.targets.common.judge import ReleaseVerdict
from racegate.targets.common.search import VERDICTS, WRONG_SHOWN, Effect, JudgedRace, known_as
from racegate.targets.common.wire import ReleaseRun, Wrong


class TokenLoss(StrictStruct, frozen=True, kw_only=True):
    """What a request got. tokens: as it was delivered; plain: as plain decoding gives it"""

    request: str
    tokens: tuple[int, ...]
    plain: tuple[int, ...]


class ReleaseWitness(SealedWitness, frozen=True, kw_only=True):
    """A landing that does harm. effect: of the landing; wrong: values that were not the true ones
    losses: requests that did not get what plain decoding gives
    """

    subject: EngineCell
    scenario: Scenario
    effect: Effect
    wrong: tuple[Wrong, ...] = ()
    losses: tuple[TokenLoss, ...] = ()

    @property
    def known_as(self) -> str:
        """With what its landing does: the hash alone would tell a reader nothing."""
        if self.finding is None:
            return self.signature
        return known_as(self.effect, self.finding.buffer, self.signature)

    @property
    def landing(self) -> Holds:
        """The holds as a run is asked for them."""
        return parse_holds(self.holds)


Released = TypeVar("Released", bound=ReleaseWitness)


def losses_of(told: ReleaseRun) -> tuple[TokenLoss, ...]:
    """Of a run, those that plain decoding does not give."""
    return tuple(
        TokenLoss(request=name, tokens=tokens, plain=told.plain.get(name, ()))
        for name, tokens in told.delivered.items()
        if tokens != told.plain.get(name, ())
    )


def witnesses_of(
    kind: type[Released], judged: ReleaseVerdict, scenario: Scenario
) -> list[Released]:
    """One per landing that does harm; conflicts that the same landing shows share theirs. kind: of
    the engine that was judged
    """
    found: dict[Holds, JudgedRace[ReleaseRun]] = {}
    for one in judged.judged:
        if one.landing is not None:
            found.setdefault(one.holds, one)
    return [_witness(kind, judged, scenario, one) for one in found.values()]


def every_witness_of(
    kind: type[Released], judged: ReleaseVerdict, scenario: Scenario
) -> list[Released]:
    """Of all that a campaign may count: one per conflict, whatever its landings do, and one of what
    is wrong in the run that is shown.
    """
    found = [_witness(kind, judged, scenario, one) for one in judged.judged]
    if judged.verdict is Verdict.DIVERGENT and judged.shown.is_wrong:
        found.append(_witness(kind, judged, scenario, None))
    return found


def _witness(
    kind: type[Released],
    judged: ReleaseVerdict,
    scenario: Scenario,
    one: JudgedRace[ReleaseRun] | None,
) -> Released:
    """Of a landing that does harm; where none does, of the conflict in the recorded run; of no
    conflict, of what is wrong in the run that is shown.
    """
    landing = None if one is None else one.landing
    run = judged.shown if landing is None else landing.what
    effect = Effect.WRONG if one is None else one.effect
    return sealed(
        kind(
            title=scenario.title or scenario.name,
            subject=judged.cell,
            scenario=scenario,
            holds=texts_of(judged.holds if one is None else one.holds),
            signature=WRONG_SHOWN if one is None else one.race.signature,
            finding=None if one is None else recorded_race(one.race),
            verdict=VERDICTS[effect],
            effect=effect,
            wrong=run.wrong,
            losses=losses_of(run),
            versions={**versions(), "torch": run.torch_version},
        )
    )


def write_witnesses(folder: Path, witnesses: Sequence[ReleaseWitness]) -> list[Path]:
    """`RELEASE-SETTINGS-SCENARIO-N.json` in the folder, which is made if it is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number, witness in enumerate(witnesses, start=1):
        cell = witness.subject
        name = "-".join((Path(cell.place).name, *cell.settings, witness.scenario.name))
        paths.append(folder / f"{name}-{number}.json")
        save(witness, paths[-1])
    return paths


def check_release(witness: ReleaseWitness) -> None:
    """Whether its scenario is one. Raises ScenarioError."""
    validate(witness.scenario)


def outcome_of(judged: ReleaseVerdict, witness: ReleaseWitness) -> ReplayOutcome:
    """What a replay showed, beside what was wrong when the witness was written."""
    if is_as_recorded(judged, witness):
        return ReplayOutcome.REPRODUCED
    if judged.verdict in (Verdict.DIVERGENT, witness.verdict):
        return ReplayOutcome.OTHER
    is_tried = judged.tried.number or not witness.holds
    return ReplayOutcome.NOTHING if is_tried else ReplayOutcome.NOT_REALISED


def is_as_recorded(judged: ReleaseVerdict, witness: ReleaseWitness) -> bool:
    """Whether the same values and losses are wrong; of a conflict whose landings do no harm that
    is known, whether it is there.
    """
    if witness.verdict is not Verdict.DIVERGENT:
        return any(race.signature == witness.signature for race in judged.races)
    told = judged.shown
    shown = (judged.verdict, told.wrong, losses_of(told))
    return shown == (witness.verdict, witness.wrong, witness.losses)
