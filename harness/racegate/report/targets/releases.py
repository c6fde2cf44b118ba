"""Verdicts on releases: in the terminal conflicts with their landings, for CI what fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from racegate.history.exit_code import ExitCode
from racegate.history.finding import exit_code as code_of
from racegate.history.outcome import Checked, CheckedCase, Failing
from racegate.history.schedule import Holds
from racegate.report.text import STYLE, print_reasons
from racegate.scenario.untrusted.console import line, lines
from racegate.targets.common.judge import ReleaseVerdict
from racegate.targets.common.result import change_lines, replay_command, wrong_lines
from racegate.targets.common.search import Effect, JudgedRace, LandingSearch
from racegate.targets.common.wire import ReleaseRun

_EFFECTS = {Effect.BENIGN: "green", Effect.UNKNOWN: "yellow"}


def print_engine_verdict(console: Console, judged: ReleaseVerdict, scenario: str) -> None:
    """scenario: as it was given on the command line."""
    console.print(f"{judged.scenario} on {judged.cell.title}")
    for hold in judged.holds:
        console.print(f"hold {hold.text()}")
    _print_wrong(console, judged.shown)
    for group in _groups(judged.judged):
        _print_conflicts(console, group, judged, scenario)
    print_reasons(console, "no pass", judged.unmet)
    print_reasons(console, "not seen", judged.not_seen)
    if judged.message:
        console.print(lines(judged.message.split("\n")))
    console.print(_last_line(judged))


def print_engine_gate(console: Console, judged: Sequence[ReleaseVerdict]) -> None:
    """One line per scenario, those that were not run last."""
    table = Table("scenario", "verdict", "conflicts", "runs under holds")
    for found in sorted(judged, key=lambda found: bool(found.refused)):
        word = "not run" if found.refused else str(found.verdict)
        runs = "" if found.search is None else str(found.search.runs)
        conflicts = "" if found.refused else str(len(found.shown.findings))
        table.add_row(found.scenario, word, conflicts, runs)
    console.print(table)


def checked_engine(judged: Sequence[tuple[Path, ReleaseVerdict]], *, exit_code: int) -> Checked:
    """For a CI service: a case for each scenario, with its file; what cannot be run is skipped."""
    cases = tuple(
        CheckedCase(
            group="scenarios",
            name=found.scenario,
            seconds=found.shown.cpu_s,
            said=_last_line(found).plain,
            skipped=found.refused,
            failing=() if found.refused else tuple(_failing(found, str(path))),
        )
        for path, found in judged
    )
    return Checked(cases=cases, exit_code=exit_code)


def _failing(judged: ReleaseVerdict, file: str) -> Iterator[Failing]:
    """What is wrong when nothing is held, what landings do, or why it is no pass."""
    make = partial(Failing, name=judged.scenario, file=file)
    code = code_of([judged.verdict])
    if code is ExitCode.CLEAN:
        return
    if wrong := wrong_lines(judged.shown):
        replay = replay_command(judged, file, judged.holds)
        message = "\n".join(wrong)
        yield make(kind="divergence", signature="wrong/held", message=message, replay=replay)
    for conflicts in _groups(judged.judged):
        found = conflicts[0]
        if found.effect is not Effect.BENIGN:
            yield _of_conflict(found, judged, make, file)
    if code is ExitCode.INCONCLUSIVE:
        text = "\n".join(filter(None, (*judged.unmet, judged.message)))
        yield make(kind="inconclusive", signature="inconclusive", message=text)


def _of_conflict(
    found: JudgedRace[ReleaseRun], judged: ReleaseVerdict, make: Callable[..., Failing], file: str
) -> Failing:
    landing = found.landing
    first, second = found.race.first, found.race.second
    lines = [f"{first.label} {_verb(first.is_write)}, {second.label} {_verb(second.is_write)}"]
    lines += [] if landing is None else change_lines(landing)
    return make(
        kind="conflict" if found.effect is Effect.UNKNOWN else "divergence",
        signature=f"{found.effect}/{found.race.signature}",
        message="\n".join(lines),
        replay="" if landing is None else replay_command(judged, file, landing.holds),
    )


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
    tried = f"{found.landings} landings tried"
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


def _print_wrong(console: Console, told: ReleaseRun) -> None:
    for wrong in wrong_lines(told):
        console.print(line(("WRONG", "bold red"), f" {wrong}"))


def _last_line(judged: ReleaseVerdict) -> Text:
    told, search = judged.shown, judged.search
    tried = _tried(search)
    return line(
        (judged.text, STYLE[judged.verdict]),
        f": {told.steps} steps, {told.events} events, {len(told.findings)} conflicts{tried}",
    )


def _tried(search: LandingSearch[ReleaseRun] | None) -> str:
    if search is None:
        return ""
    text = f", {search.runs} runs under holds"
    why = f" (not every landing was tried: {search.limits[0]})" if search.limits else ""
    return f"{text}{why}"


def _verb(is_write: bool) -> str:  # noqa: FBT001
    return "writes" if is_write else "reads"
