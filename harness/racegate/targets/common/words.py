"""What is said of runs of an engine, in words: what is wrong, what a landing changes, how it is run
again.
"""

from __future__ import annotations

from shlex import quote

from racegate.history.schedule import Holds
from racegate.interpose.outcome import Observation
from racegate.targets.common.judge import TargetVerdict
from racegate.targets.common.landings import LandingRun
from racegate.targets.common.wire import ReleaseRun

_SHOWN_MAX = 160


def wrong_lines(told: ReleaseRun) -> list[str]:
    """What is wrong in a run by itself."""
    lines = [
        f"step {wrong.step}: {wrong.what}: {wrong.used} used, {wrong.true} true"
        for wrong in told.wrong
    ]
    for name, tokens in told.delivered.items():
        plain = told.plain.get(name, ())
        if tokens != plain:
            lines.append(f"request {name} delivers {list(tokens)}, plain decoding {list(plain)}")
    return lines


def change_lines(base: ReleaseRun, landing: LandingRun[ReleaseRun]) -> list[str]:
    """What is other in a landing than in the run in which nothing was held."""
    held = landing.what
    lines = wrong_lines(held)
    change = _first_change(base.observations, held.observations)
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


def replay_command(judged: TargetVerdict, scenario: str, holds: Holds) -> str:
    """The command that runs a landing again."""
    command, *options = judged.cell.command
    parts = [f"racegate {command}", scenario, *options]
    parts += [f"--hold {quote(hold.text())}" for hold in holds]
    return " ".join(parts)
