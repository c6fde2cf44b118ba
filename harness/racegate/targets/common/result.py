"""What is said of one scenario on a release, as the result that every command prints."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote

import msgspec

from racegate.history.finding import Finding, FindingKind, Verdict, finding_of
from racegate.history.outcome import RunResult
from racegate.history.schedule import Holds, texts_of
from racegate.history.stats import Stats
from racegate.interpose.outcome import Observation
from racegate.targets.common.judge import ReleaseVerdict
from racegate.targets.common.landings import LandingRun
from racegate.targets.common.search import WRONG_SHOWN, Effect, JudgedRace, known_as
from racegate.targets.common.verdict import finding_in, result_from
from racegate.targets.common.wire import ReleaseRun

# Of what landings do to a conflict, the worst first.
_WORST_FIRST = (Effect.WRONG, Effect.DIVERGENT, Effect.UNKNOWN, Effect.BENIGN)
_SHOWN_MAX = 160


def result_of(judged: ReleaseVerdict, file: str) -> RunResult:
    """The result of a judged scenario. file: of the scenario, as commands that replay name it"""
    return result_from(
        judged,
        RunResult,
        () if judged.refused else tuple(_findings(judged, file)),
        scenario=judged.scenario,
        target=judged.cell.title,
        stats=_stats(judged),
    )


def _stats(judged: ReleaseVerdict) -> Stats:
    shown = judged.shown
    return Stats(
        steps=shown.steps,
        ops=shown.events,
        delivered=sum(map(len, shown.delivered.values())),
        boundaries=len(shown.observations),
        conflicts=len(judged.races),
        schedules=judged.schedules,
        seconds=shown.cpu_s,
        exercised=shown.counters,
    )


def _findings(judged: ReleaseVerdict, file: str) -> Iterator[Finding]:
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
    for one in sorted(judged.judged, key=lambda one: _WORST_FIRST.index(one.effect)):
        yield _of_race(one, judged, file)


def _wrong_in(judged: ReleaseVerdict) -> list[str]:
    """What is wrong in the run that is shown, whatever races in it."""
    if judged.verdict is not Verdict.DIVERGENT:
        return []
    lines = wrong_lines(judged.shown)
    if not lines and judged.search is None:
        lines = [judged.message or "the holds change what is observed"]
    return lines


def _of_race(one: JudgedRace[ReleaseRun], judged: ReleaseVerdict, file: str) -> Finding:
    """A race with what its landings do."""
    changes = [] if one.landing is None else change_lines(one.landing)
    found = finding_in(one, changes, replay_command(judged, file, one.holds))
    return msgspec.structs.replace(
        found, signature=known_as(one.effect, one.race.buffer, one.race.signature)
    )


def wrong_lines(told: ReleaseRun) -> list[str]:
    """What is wrong in a run by itself."""
    lines = [
        f"step {wrong.step}: {wrong.what}: {wrong.used} used, {wrong.true} true"
        for wrong in (*told.wrong, *(one for one in told.untrue if one not in told.wrong))
    ]
    for name, tokens in told.delivered.items():
        plain = told.plain.get(name, ())
        if tokens != plain:
            lines.append(f"request {name} delivers {list(tokens)}, plain decoding {list(plain)}")
    return lines


def change_lines(landing: LandingRun[ReleaseRun]) -> list[str]:
    """What is other in a landing than in the run in which nothing was held."""
    held, before = landing.what, wrong_lines(landing.base)
    lines = [line for line in wrong_lines(held) if line not in before]
    change = _first_change(landing.base.observations, held.observations)
    if change and not lines:
        lines.append(change)
    if held.message:
        lines.append(held.message)
    return lines[:4]


def _first_change(base: tuple[Observation, ...], held: tuple[Observation, ...]) -> str:
    for mine, its in zip(base, held, strict=False):
        if mine != its:
            return f"{mine.name}: {its.preview[:_SHOWN_MAX]}, eagerly {mine.preview[:_SHOWN_MAX]}"
    return ""


def replay_command(judged: ReleaseVerdict, scenario: str, holds: Holds) -> str:
    """The command that runs a landing again."""
    command, *options = judged.cell.command
    parts = [f"racegate {command}", scenario, *options]
    parts += [f"--hold {quote(hold.text())}" for hold in holds]
    return " ".join(parts)
