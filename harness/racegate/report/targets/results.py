"""Results of targets that are not ours in the terminal: one judged scenario, and a gate's table."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from rich.console import Console

from racegate.history.finding import exit_code
from racegate.history.outcome import GatedResults, RunResult
from racegate.report.text import (
    FINDINGS_SHOWN_MAX,
    STYLE,
    finding_panel,
    gate_table,
    print_reasons,
    tried_of,
)
from racegate.scenario.untrusted.console import line, lines
from racegate.scenario.untrusted.text import many

Details = Callable[[], None]


def print_judgement(console: Console, result: RunResult, details: Details | None = None) -> None:
    """What was found, the verdict, and what it does not cover. details: prints what was found, if
    the target has a form of its own for that
    """
    planted = "" if result.fault is None else f", planted: {result.fault}"
    console.print(f"{result.scenario} on {result.target} ({result.device}){planted}")
    for hold in result.holds:
        state = "realised" if hold.realised else "not realised"
        console.print(f"hold {hold.hold}: {state}")
    if details is None:
        _print_findings(console, result)
    else:
        details()
    print_reasons(console, "not exercised", result.unmet)
    print_reasons(console, "not seen", result.not_seen)
    if result.message:
        console.print(lines(result.message.split("\n")))
    console.print(line((result.text, STYLE[result.verdict]), f": {counts_of(result)}"))


def counts_of(result: RunResult) -> str:
    """What a verdict rests on."""
    stats = result.stats
    counts = ", ".join(
        (
            many(stats.steps, "step"),
            many(stats.ops, "operation"),
            many(stats.conflicts, "conflict"),
        )
    )
    if stats.schedules == 1 and not result.tried.known:
        return counts
    tried = tried_of(result)
    return f"{counts}, {tried} {'landing' if tried == '1' else 'landings'} run"


def _print_findings(console: Console, result: RunResult) -> None:
    for finding in result.findings[:FINDINGS_SHOWN_MAX]:
        console.print(finding_panel(finding))
    hidden = len(result.findings) - FINDINGS_SHOWN_MAX
    if hidden > 0:
        console.print(f"... and {many(hidden, 'more finding')} (all of them with --json -)")


def print_target_gate(console: Console, gate: GatedResults, told: Sequence[str] = ()) -> None:
    """A row per scenario that was run, the others by name, and the verdict of all. told: scenarios
    that were printed before
    """
    console.print(gate_table(gate.run))
    for result in gate.results:
        if result.refused:
            console.print(f"not run: {result.scenario}: {result.refused}")
        elif exit_code([result.verdict]) and result.scenario not in told:
            # What none of them covers is said once, below.
            print_judgement(console, msgspec.structs.replace(result, not_seen=()))
    unseen = (text for result in gate.results for text in result.not_seen)
    print_reasons(console, "not seen", dict.fromkeys(unseen))
    said = (str(gate.verdict), STYLE[gate.verdict])
    missing = len(gate.results) - len(gate.run)
    not_run = f", {missing} not run (--except NAME leaves one out)" if missing else ""
    console.print(line(said, f": {many(len(gate.run), 'scenario')}{not_run}"))
