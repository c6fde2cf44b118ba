"""One replay in the terminal, as its subject is shown."""

from __future__ import annotations

from rich.console import Console

from racegate.history.replayed import Replay, ReplaySummary
from racegate.report.search import print_outcome, print_replay
from racegate.report.targets.results import print_judgement
from racegate.report.text import ShownFinding
from racegate.scenario.untrusted.console import lines
from racegate.targets.program.workflow.replay import ProgramReplay, render_replay


def print_one_replay(
    console: Console, result: ReplaySummary, shown: ShownFinding | None = None
) -> None:
    """What a replay showed, as its subject is shown. shown: of the last run of our own engine"""
    if isinstance(result, ProgramReplay):
        console.print(lines(render_replay(result).split("\n")), soft_wrap=True)
    elif isinstance(result, Replay) and result.subject == "engine":
        print_replay(console, result, shown)
    elif isinstance(result, Replay):
        print_judgement(console, result.last)
        print_outcome(console, result)
