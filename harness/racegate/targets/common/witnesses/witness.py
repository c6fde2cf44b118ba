"""A witness of a landing that does harm in a release: what was wrong in it stands as data, by which
a replay is compared.

Operations are named by function, buffer and count, so a witness of one release can be tried on the
next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from racegate.history.finding import Verdict
from racegate.history.replayed import ReplayOutcome
from racegate.history.schedule import Holds, parse_holds, texts_of
from racegate.history.witness import (
    Raw,
    SealedWitness,
    WitnessError,
    read_object,
    recorded_race,
    save,
    sealed,
    subject_of,
    versions,
    witness_of_kind,
)
from racegate.scenario.spec import Scenario, ScenarioError
from racegate.scenario.strict import StrictStruct
from racegate.scenario.untrusted.text import quoted
from racegate.scenario.validation import validate
from racegate.targets.common.cell import EngineCell
from racegate.targets.common.judge import TargetVerdict
from racegate.targets.common.search import Effect, JudgedRace
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


def witnesses_of(kind: type[Released], judged: TargetVerdict, scenario: Scenario) -> list[Released]:
    """One per landing that does harm; conflicts that the same landing shows share theirs. kind: of
    the engine that was judged
    """
    if judged.search is None:
        return []
    found: dict[Holds, Released] = {}
    for conflict in judged.search.conflicts:
        if conflict.landing is not None and conflict.landing.holds not in found:
            found[conflict.landing.holds] = _witness(kind, judged, scenario, conflict)
    return list(found.values())


def _witness(
    kind: type[Released], judged: TargetVerdict, scenario: Scenario, conflict: JudgedRace
) -> Released:
    assert conflict.landing is not None
    told, race = conflict.landing.what, conflict.race
    return sealed(
        kind(
            title=scenario.title or scenario.name,
            subject=judged.cell,
            scenario=scenario,
            holds=texts_of(conflict.landing.holds),
            signature=race.signature,
            finding=recorded_race(race),
            verdict=Verdict.DIVERGENT,
            effect=conflict.effect,
            wrong=told.wrong,
            losses=losses_of(told),
            versions={**versions(), "torch": told.torch_version},
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


def read_release_witness(
    path: Path, kind: type[Released], of: str, converted: Callable[[Raw], Raw] = dict
) -> Released:
    """The witness in a file. Raises WitnessError with the reason.

    of: the subject that is expected; converted: an older file's fields as the schema has them
    """
    raw = read_object(path)
    if (found := subject_of(raw, source=str(path))) != of:
        raise WitnessError(f"{path}: a witness of {quoted(found)}, not of {of}")
    witness = witness_of_kind(raw, kind, converted, source=str(path))
    try:
        validate(witness.scenario, source=str(path))
    except ScenarioError as error:
        raise WitnessError(f"{path}: {error}") from error
    return witness


def outcome_of(judged: TargetVerdict, witness: ReleaseWitness) -> ReplayOutcome:
    """What a replay showed, beside what was wrong when the witness was written."""
    if judged.verdict is not Verdict.DIVERGENT:
        return ReplayOutcome.NOTHING if judged.tried.number else ReplayOutcome.NOT_REALISED
    return ReplayOutcome.REPRODUCED if is_as_recorded(judged, witness) else ReplayOutcome.OTHER


def is_as_recorded(judged: TargetVerdict, witness: ReleaseWitness) -> bool:
    """Whether the same values and losses are wrong."""
    told = judged.shown
    return (told.wrong, losses_of(told)) == (witness.wrong, witness.losses)
