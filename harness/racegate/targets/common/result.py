"""What is said of one scenario on a release, as the result that every command prints."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from racegate.history.finding import (
    Finding,
    FindingKind,
    Verdict,
    finding_of,
    with_hazards,
)
from racegate.history.outcome import RunResult
from racegate.history.schedule import texts_of
from racegate.history.stats import Stats
from racegate.history.trace import HoldOutcome
from racegate.interpose.outcome import Ending
from racegate.targets.common.judge import TargetVerdict
from racegate.targets.common.search import VERDICTS, WRONG_SHOWN, Effect, JudgedRace, known_as
from racegate.targets.common.words import change_lines, replay_command, wrong_lines

# Of what landings do to a conflict, the worst first.
_WORST_FIRST = (Effect.WRONG, Effect.DIVERGENT, Effect.UNKNOWN, Effect.BENIGN)
_LOST = (Ending.LOST, Ending.TIMED_OUT)


def result_of(judged: TargetVerdict, file: str) -> RunResult:
    """The result of a judged scenario. file: of the scenario, as commands that replay name it"""
    outcome = judged.shown
    return RunResult(
        scenario=judged.scenario,
        target=judged.cell.title,
        device="virtual",
        config={},
        fault=None,
        schedule=texts_of(judged.holds),
        verdict=judged.verdict,
        findings=() if judged.refused else with_hazards(tuple(_findings(judged, file))),
        stats=_stats(judged),
        holds=tuple(
            HoldOutcome(hold=hold, matched=count, realised=count)
            for hold, count in outcome.realised.items()
        ),
        unmet=judged.unmet,
        warnings=(),
        tried=judged.tried,
        not_seen=judged.not_seen,
        message=judged.message,
        refused=judged.refused,
        is_lost=outcome.ending in _LOST,
    )


def _stats(judged: TargetVerdict) -> Stats:
    told = judged.shown
    return Stats(
        steps=told.steps,
        ops=told.events,
        delivered=sum(map(len, told.delivered.values())),
        boundaries=len(told.observations),
        conflicts=len(judged.races),
        schedules=1 + (judged.search.runs if judged.search is not None else bool(judged.holds)),
        seconds=told.cpu_s,
        exercised=told.counters,
    )


def _findings(judged: TargetVerdict, file: str) -> Iterator[Finding]:
    """What is wrong in the run that is shown, then what races, the worst first."""
    if lines := _wrong_in(judged):
        yield Finding(
            kind=FindingKind.DIVERGENCE,
            signature=WRONG_SHOWN,
            message="\n".join(lines),
            holds=texts_of(judged.holds),
            replay=replay_command(judged, file, judged.holds),
        )
    if judged.search is None:
        yield from map(finding_of, judged.races)
        return
    for one in sorted(judged.search.conflicts, key=lambda one: _WORST_FIRST.index(one.effect)):
        yield _of_conflict(one, judged, file)


def _wrong_in(judged: TargetVerdict) -> list[str]:
    """What is wrong in the run that is shown, whatever races in it."""
    if judged.verdict is not Verdict.DIVERGENT:
        return []
    lines = wrong_lines(judged.shown)
    if not lines and judged.search is None:
        lines = [judged.message or "the holds change what is observed"]
    return lines


def _of_conflict(one: JudgedRace, judged: TargetVerdict, file: str) -> Finding:
    """A race with what its landings do."""
    race, landing = one.race, one.landing
    found = msgspec.structs.replace(
        finding_of(race),
        signature=known_as(one.effect, race.buffer, race.signature),
        verdict=VERDICTS[one.effect],
    )
    if landing is None:
        return found
    changes = change_lines(judged.shown, landing)
    return msgspec.structs.replace(
        found,
        message="\n".join([found.message, *changes]),
        holds=texts_of(landing.holds),
        replay=replay_command(judged, file, landing.holds),
    )
