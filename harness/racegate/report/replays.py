"""One replay in the terminal, as its subject is shown."""

from __future__ import annotations

from rich.console import Console

from racegate.check.repro.replay import Replay
from racegate.history.replayed import Replayed, ReplayOutcome
from racegate.report.adapter import print_judgement
from racegate.report.search import print_replay
from racegate.report.text import Shown
from racegate.scenario.untrusted.console import line, lines
from racegate.targets.adapters.witness import AdapterReplay
from racegate.targets.common.replay import ReleaseReplay
from racegate.targets.common.report import print_engine_verdict
from racegate.targets.program.workflow.replay import ProgramReplay, render_replay


def print_one_replay(
    console: Console, result: Replayed, file: str, shown: Shown | None = None
) -> None:
    """What a replay showed. file: of the witness; shown: of the last run of our own engine"""
    match result:
        case Replay():
            print_replay(console, result, shown)
        case ProgramReplay():
            console.print(lines(render_replay(result).split("\n")), soft_wrap=True)
        case ReleaseReplay(last=last):
            print_engine_verdict(console, last, file)
            _print_outcome(console, result)
        case AdapterReplay(last=judged):
            print_judgement(console, judged)
            _print_outcome(console, result)


def _print_outcome(console: Console, result: Replayed) -> None:
    count = result.outcomes.get(result.outcome, 0)
    style = "bold red" if result.outcome is ReplayOutcome.REPRODUCED else "yellow"
    what = f" {count} of {result.times}: {result.witness}"
    console.print(line((result.outcome, style), what))
