"""Verdicts on releases in the terminal: conflicts with their landings."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from racegate.history.schedule import Holds
from racegate.report.causes import lacking
from racegate.report.targets.results import print_judgement
from racegate.report.text import print_reasons
from racegate.scenario.untrusted.console import line
from racegate.scenario.untrusted.text import many
from racegate.targets.common.judge import ReleaseVerdict
from racegate.targets.common.result import change_lines, replay_command, result_of, wrong_lines
from racegate.targets.common.search import Effect, JudgedRace
from racegate.targets.common.wire import ReleaseRun

_EFFECTS = {Effect.BENIGN: "green", Effect.UNKNOWN: "yellow"}


def print_engine_verdict(console: Console, judged: ReleaseVerdict, scenario: str) -> None:
    """scenario: as it was given on the command line."""

    def details() -> None:
        for wrong in wrong_lines(judged.shown):
            console.print(line(("WRONG", "bold red"), f" {wrong}"))
        for cause in _causes(judged.judged):
            race = cause[0].race
            if len(cause) > 1:
                said = f" {race.missing}; lacks it: {lacking(race)}"
                console.print(line((f"edge of {len(cause)} conflicts", "bold"), said))
            for group in _groups(cause):
                _print_conflicts(console, group, judged, scenario)
        limits = () if judged.search is None else judged.search.limits
        print_reasons(console, "not every landing was tried", limits)

    print_judgement(console, result_of(judged, scenario), details)


def _causes(conflicts: Sequence[JudgedRace[ReleaseRun]]) -> list[list[JudgedRace[ReleaseRun]]]:
    """Conflicts that lack one edge, first those of which a landing does harm."""
    found: dict[str, list[JudgedRace[ReleaseRun]]] = {}
    for one in conflicts:
        found.setdefault(one.race.missing, []).append(one)
    return sorted(found.values(), key=lambda cause: all(one.landing is None for one in cause))


def _groups(conflicts: Sequence[JudgedRace[ReleaseRun]]) -> list[list[JudgedRace[ReleaseRun]]]:
    """Conflicts of one operation with one effect and landing belong together."""
    groups: dict[tuple[str, Effect, Holds], list[JudgedRace[ReleaseRun]]] = {}
    for found in conflicts:
        groups.setdefault((found.race.first.label, found.effect, found.holds), []).append(found)
    return list(groups.values())


def _print_conflicts(
    console: Console, group: list[JudgedRace[ReleaseRun]], judged: ReleaseVerdict, scenario: str
) -> None:
    found = group[0]
    first = found.race.first
    style = _EFFECTS.get(found.effect, "bold red")
    tried = f"{many(found.landings, 'landing')} tried"
    what = f" {first.label} {_verb(first.is_write)}; {tried}"
    console.print(line((found.effect.upper(), style), what))
    for other in group:
        second, count = other.race.second, other.race.count
        often = f"{count} times" if count > 1 else "once"
        console.print(
            f"  {second.label} {_verb(second.is_write)} {other.race.nbytes} common bytes, {often}"
        )
    if found.landing is not None:
        for change in change_lines(found.landing):
            console.print(f"  {change}")
        command = replay_command(judged, scenario, found.landing.holds)
        console.print(f"  replay: {command}", soft_wrap=True)  # to be copied


def _verb(is_write: bool) -> str:  # noqa: FBT001
    return "writes" if is_write else "reads"
